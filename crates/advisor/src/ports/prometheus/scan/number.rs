//! Reads decimal numbers as Prometheus writes them, faster than the standard library where that is
//! possible without a doubt about the last bit, and with the standard library where not.

/// Digits after the point for which there is a reciprocal of the power of ten.
const FRACTION_MAX: usize = 27;
/// Powers of ten that an `f64` holds exactly.
const EXACT: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// `10^-k` as `mantissa / 2^(63 + shift)`, cut off; the mantissa's top bit is set.
#[derive(Clone, Copy)]
struct Reciprocal {
    mantissa: u64,
    shift: u32,
}

const RECIPROCALS: [Reciprocal; FRACTION_MAX + 1] = reciprocals();

const fn reciprocals() -> [Reciprocal; FRACTION_MAX + 1] {
    let mut all = [Reciprocal { mantissa: 0, shift: 0 }; FRACTION_MAX + 1];
    let mut power: u128 = 1;
    let mut k = 0;
    while k <= FRACTION_MAX {
        // The smallest power of two that is not less than the power of ten, divided bit by bit.
        let shift = if power == 1 { 0 } else { 128 - (power - 1).leading_zeros() };
        let mut rest = 1u128 << shift;
        let mut mantissa = 0u64;
        let mut bit = 0;
        while bit < 64 {
            mantissa <<= 1;
            if rest >= power {
                rest -= power;
                mantissa |= 1;
            }
            rest <<= 1;
            bit += 1;
        }
        all[k] = Reciprocal { mantissa, shift };
        power *= 10;
        k += 1;
    }
    all
}

/// A number that the fast path understood, and how many bytes it has.
pub(super) fn decimal(text: &[u8]) -> Option<(f64, usize)> {
    let negative = text.first() == Some(&b'-');
    let start = usize::from(negative);
    let mut digits = 0u64;
    let whole = accumulate(&text[start..], &mut digits);
    if whole == 0 {
        return None;
    }
    let mut at = start + whole;
    let mut fraction = 0;
    // Leading zeros do not count among the 19 digits that a u64 holds.
    let mut significant = if digits == 0 { 0 } else { whole };
    if text.get(at) == Some(&b'.') {
        at += 1;
        let zeros = if digits == 0 { zeros(&text[at..]) } else { 0 };
        let more = accumulate(&text[at + zeros..], &mut digits);
        fraction = zeros + more;
        significant += more;
        at += fraction;
        if fraction == 0 {
            return None;
        }
    }
    if significant > 19 || fraction > FRACTION_MAX {
        return None;
    }
    let value = if fraction == 0 {
        digits as f64
    } else {
        scaled(digits, RECIPROCALS[fraction]).or_else(|| exact(digits, fraction))?
    };
    Some((if negative { -value } else { value }, at))
}

fn zeros(text: &[u8]) -> usize {
    text.iter().take_while(|byte| **byte == b'0').count()
}

/// Reads digits into `digits`, which wraps around if there are more than 19; how many there were.
fn accumulate(text: &[u8], digits: &mut u64) -> usize {
    let mut at = 0;
    while let Some(eight) = text.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let Some(value) = eight_digits(u64::from_le_bytes(*eight)) else { break };
        *digits = digits.wrapping_mul(100_000_000).wrapping_add(value);
        at += 8;
    }
    while let Some(digit) = text.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|d| *d < 10) {
        *digits = digits.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    at
}

/// The value of eight bytes if all are digits: pairs, then fours, then eight at once.
pub(super) fn eight_digits(bytes: u64) -> Option<u64> {
    let digits = bytes.wrapping_sub(0x3030_3030_3030_3030);
    let high = bytes.wrapping_add(0x4646_4646_4646_4646);
    if (digits | high) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff)
}

/// `digits * 10^-k`, correctly rounded. None where the cut-off reciprocal leaves open to which side
/// it rounds, which is about one number in 500.
fn scaled(digits: u64, power: Reciprocal) -> Option<f64> {
    if digits == 0 {
        return Some(0.0);
    }
    let zeros = digits.leading_zeros();
    let product = u128::from(digits << zeros) * u128::from(power.mantissa);
    let high = (product >> 64) as u64;
    // 53 bits are kept. The true product is less than two units of `high` above it.
    let dropped = 10 + (high >> 63) as u32;
    let rest = high & ((1 << dropped) - 1);
    let half = 1u64 << (dropped - 1);
    if rest == half || rest == half - 1 {
        return None;
    }
    let mantissa = (high >> dropped) + u64::from(rest > half);
    // The mantissa's leading bit, and a carry out of it by rounding, add to the exponent.
    let exponent = 1023 + 52 + dropped + 1 - zeros - power.shift - 1;
    Some(f64::from_bits((u64::from(exponent) << 52) + mantissa))
}

/// The same where both numbers are exact as `f64`, so that their quotient is correctly rounded.
fn exact(digits: u64, fraction: usize) -> Option<f64> {
    let power = EXACT.get(fraction).filter(|_| digits < 1 << 53)?;
    Some(digits as f64 / power)
}

/// Any number: also exponents, `NaN`, `+Inf` and `-Inf`.
pub(super) fn parse(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "+Inf" | "Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        // The standard library would accept more words than Prometheus has.
        _ if text
            .bytes()
            .any(|byte| byte.is_ascii_alphabetic() && !matches!(byte, b'e' | b'E')) =>
        {
            None
        }
        _ => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn same(text: &str) {
        if let Some((value, bytes)) = decimal(text.as_bytes()) {
            assert_eq!(bytes, text.len(), "{text}");
            let right: f64 = text.parse().unwrap();
            assert_eq!(value.to_bits(), right.to_bits(), "{text}: {value:e}, not {right:e}");
        }
    }

    #[test]
    fn known_numbers_are_exact() {
        for text in [
            "0",
            "-0",
            "1",
            "0.1",
            "0.3",
            "954841262.3333333",
            "0.012345678901234567",
            "9007199254740993",
            "9007199254740992.5",
            "18446744073709551615",
            "1234567890123456789",
            "0.000001234567890123456",
            "1909682524.6666665",
            "4503599627370497.5",
            "0.9999999999999999",
            "123456.0000000000000001",
            "9999999999999999",
            "99999999999999999.99",
        ] {
            same(text);
        }
        assert_eq!(decimal(b"12345678901234567.5\""), Some((12345678901234567.5, 19)));
    }

    #[test]
    fn what_it_does_not_understand_is_left_to_the_standard_library() {
        for text in [
            "",
            "-",
            "NaN",
            "+Inf",
            ".5",
            "1.",
            "123456789012345678901",
            "0.0000000000000000000000000001",
        ] {
            assert_eq!(decimal(text.as_bytes()), None, "{text}");
        }
        assert_eq!(decimal(b"1e-7"), Some((1.0, 1)));
        assert!(
            parse("NaN").unwrap().is_nan() && parse("infinity").is_none() && parse("nan").is_none()
        );
        assert_eq!(
            (parse("+Inf"), parse("-Inf"), parse("1e-07")),
            (Some(f64::INFINITY), Some(f64::NEG_INFINITY), Some(1e-7))
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3_000))]

        #[test]
        fn every_float_is_read_as_the_standard_library_reads_it(bits in any::<u64>(), exponent in 960_u64..1090) {
            // Of a size that measurements have: 1e-19 to 1e20.
            let value = f64::from_bits(bits & 0x800f_ffff_ffff_ffff | exponent << 52);
            same(&format!("{value}"));
        }

        #[test]
        fn every_text_of_digits_is_read_as_the_standard_library_reads_it(
            whole in "[0-9]{1,20}", fraction in "(\\.[0-9]{1,28})?"
        ) {
            same(&format!("{whole}{fraction}"));
        }
    }
}
