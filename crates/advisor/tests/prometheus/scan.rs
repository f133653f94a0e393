//! The scanner of Prometheus' answers: against serde_json, at every cut, and on what servers send on
//! bad days.

use advisor::ports::prometheus::scan::{Answer, Limits, ScanError, Scanner};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Labels, times in milliseconds, and the bits of values: NaN must equal NaN.
type Plain = Vec<(Vec<(String, String)>, Vec<(i64, u64)>)>;

fn scan(chunks: &[&[u8]]) -> Result<Answer, ScanError> {
    scan_within(Limits::default(), chunks)
}

fn scan_within(limits: Limits, chunks: &[&[u8]]) -> Result<Answer, ScanError> {
    let mut scanner = Scanner::new(limits);
    for chunk in chunks {
        scanner.feed(chunk)?;
    }
    scanner.finish()
}

fn scan_text(text: &str) -> Result<Answer, ScanError> {
    scan(&[text.as_bytes()])
}

fn plain(answer: &Answer) -> Plain {
    let series = answer.series().map(|(labels, times, values)| {
        let labels = labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let bits = values.iter().map(|value| value.to_bits());
        (labels.collect(), times.iter().copied().zip(bits).collect())
    });
    series.collect()
}

/// What serde_json and the standard library make of the same text.
fn reference(text: &str) -> Plain {
    let answer: Value = serde_json::from_str(text).unwrap();
    let sample = |sample: &Value| {
        let time = (sample[0].as_f64().unwrap() * 1000.0).round() as i64;
        let value: f64 = sample[1].as_str().unwrap().parse().unwrap();
        (time, value.to_bits())
    };
    let series = answer["data"]["result"].as_array().unwrap().iter().map(|series| {
        let labels = series["metric"].as_object().unwrap().iter();
        let labels = labels.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()));
        let mut labels: Vec<_> = labels.collect();
        labels.sort();
        let samples = match &series["values"] {
            Value::Array(samples) => samples.iter().map(sample).collect(),
            _ => vec![sample(&series["value"])],
        };
        (labels, samples)
    });
    series.collect()
}

/// A value as Prometheus writes it.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (0.0..1e10_f64).prop_map(|value| value.to_string()),
        2 => (0.0..1.0_f64).prop_map(|value| value.to_string()),
        2 => any::<u32>().prop_map(|value| value.to_string()),
        1 => any::<f64>().prop_filter("finite", |v| v.is_finite()).prop_map(|v| format!("{v:e}")),
        1 => prop_oneof![Just("NaN".to_owned()), Just("+Inf".to_owned()), Just("-Inf".to_owned())],
    ]
}

fn samples() -> impl Strategy<Value = Vec<Value>> {
    let times = prop_oneof![
        Just((1_793_477_232_000_i64, 900_000)),
        Just((1_793_477_232_600, 15_000)),
        Just((999_000_000_000, 60_007)),
        Just((-5000, 1250)),
    ];
    (times, prop::collection::vec(value(), 0..12)).prop_map(|((start, step), values)| {
        let sample = |(i, value): (usize, String)| {
            let ms = start + i as i64 * step;
            if ms % 1000 == 0 {
                json!([ms / 1000, value])
            } else {
                json!([ms as f64 / 1000.0, value])
            }
        };
        values.into_iter().enumerate().map(sample).collect()
    })
}

/// An answer of a range query, with members in any order, spaces, and members that nobody knows.
fn answer() -> impl Strategy<Value = String> {
    let labels = prop::collection::btree_map("[a-z_]{1,8}", "\\PC{0,6}|[\"\\\\/\n\t]{1,3}", 0..4);
    let unknown = prop_oneof![
        Just(Value::Null),
        Just(json!({ "a": [1, { "b": "}]\"\\" }, null, true], "c": -1.5e3 })),
        Just(json!("text with , and } and \" and \\")),
    ];
    let series = (labels, samples(), any::<bool>(), unknown.clone());
    (prop::collection::vec(series, 0..5), any::<[bool; 4]>(), unknown).prop_map(
        |(series, [pretty, type_first, unknown_first, warnings], unknown)| {
            let result =
                series.into_iter().enumerate().map(|(i, (mut labels, samples, first, odd))| {
                    labels.insert("series".to_owned(), i.to_string());
                    if first {
                        json!({ "metric": labels, "values": samples, "histograms": odd })
                    } else {
                        json!({ "x": odd, "values": samples, "metric": labels })
                    }
                });
            let result: Value = result.collect();
            let data = if type_first {
                json!({ "resultType": "matrix", "result": result, "stats": unknown })
            } else {
                json!({ "analysis": unknown, "result": result, "resultType": "matrix" })
            };
            let mut answer = if unknown_first {
                json!({ "trace": unknown, "data": data, "status": "success" })
            } else {
                json!({ "status": "success", "data": data, "trace": unknown })
            };
            if warnings {
                answer["warnings"] = json!(["one", "two \u{1F600}"]);
            }
            if pretty { serde_json::to_string_pretty(&answer).unwrap() } else { answer.to_string() }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_answer_is_read_as_serde_json_reads_it(text in answer()) {
        let read = scan_text(&text).unwrap();
        prop_assert_eq!(plain(&read), reference(&text));
        prop_assert_eq!(read.partial().is_some(), text.contains("\"warnings\""));
    }

    #[test]
    fn a_cut_at_any_byte_changes_nothing(text in answer()) {
        let (bytes, whole) = (text.as_bytes(), plain(&scan_text(&text).unwrap()));
        for cut in 0..=bytes.len() {
            let (first, second) = bytes.split_at(cut);
            prop_assert_eq!(&plain(&scan(&[first, second]).unwrap()), &whole, "cut at {}", cut);
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&plain(&scan(&single).unwrap()), &whole);
    }

    #[test]
    fn an_answer_that_ends_early_is_an_error(text in answer()) {
        for end in 0..text.trim_end().len() {
            let error = scan(&[&text.as_bytes()[..end]]).unwrap_err();
            prop_assert_eq!(error, ScanError::Truncated { bytes: end as u64 });
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(text in answer(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = scan(&[&bytes]);
        let _ = scan(&bytes.chunks(3).collect::<Vec<_>>());
    }
}

#[test]
fn instant_answers_are_vectors_and_scalars() {
    let vector = r#"{"status":"success","data":{"resultType":"vector","result":[
        {"metric":{"__name__":"up","job":"node"},"value":[1794773245.6,"1"]},
        {"metric":{},"value":[1794773245.6,"0"]}]}}"#;
    let answer = scan_text(vector).unwrap();
    assert_eq!(answer.series_count(), 2);
    let (labels, times, values) = answer.series().next().unwrap();
    assert_eq!((labels.get("job"), labels.get("pod")), ("node", ""));
    assert_eq!((times, values), (&[1_794_773_245_600_i64][..], &[1.0][..]));

    let scalar =
        r#"{"status":"success","data":{"resultType":"scalar","result":[1794773245,"NaN"]}}"#;
    let answer = scan_text(scalar).unwrap();
    assert!(answer.series().next().unwrap().2[0].is_nan());
    for bytes in [vector, scalar] {
        for cut in 0..bytes.len() {
            let (first, second) = bytes.as_bytes().split_at(cut);
            assert!(scan(&[first, second]).is_ok(), "cut at {cut}");
        }
    }
}

#[test]
fn an_empty_result_is_an_answer() {
    for result in ["[]", "null", " [ ] "] {
        let text =
            format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":{result}}}}}"#);
        assert_eq!(scan_text(&text).unwrap().series_count(), 0, "{result}");
    }
}

#[test]
fn an_error_of_prometheus_is_reported_in_its_words() {
    let text = r#"{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory in query execution"}"#;
    let error = scan_text(text).unwrap_err();
    assert!(matches!(&error, ScanError::Failed { kind, .. } if kind == "execution"));
    assert!(error.to_string().contains("execution: query processing would load too many samples"));
    let bare = scan_text(r#"{"status":"error","data":null}"#).unwrap_err();
    assert!(matches!(bare, ScanError::Failed { .. }));
}

#[test]
fn warnings_of_missing_data_are_apart_from_those_about_the_query() {
    let text = |warnings: &str| {
        format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[]}},"infos":["i"],"warnings":{warnings}}}"#
        )
    };
    let partial = scan_text(&text(
        r#"["PromQL warning: bucket label", "error reading from server: \"EOF\""]"#,
    ))
    .unwrap();
    assert_eq!(partial.partial(), Some("error reading from server: \"EOF\""));
    assert_eq!(scan_text(&text(r#"["PromQL info: no counter"]"#)).unwrap().partial(), None);
    assert_eq!(scan_text(&text("null")).unwrap().partial(), None);
}

#[test]
fn what_prometheus_does_not_say_is_an_error() {
    let result = |result: &str| {
        format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":{result}}}}}"#)
    };
    for (text, part) in [
        ("<html>502</html>".to_owned(), "expected an object at byte 0"),
        ("{}".to_owned(), "no status"),
        (r#"{"status":"success"}"#.to_owned(), "type"),
        (
            r#"{"status":"success","data":{"resultType":"string","result":[1,"a"]}}"#.to_owned(),
            "a number in a string",
        ),
        (result("[]") + "x", "nothing after the answer"),
        (result("[],\"result\":[]"), "two results"),
        (result("[]").replace("success\",", "success\" "), "a member or the end"),
        (result(r#"[{"values":[]}]"#), "no metric"),
        (result(r#"[{"metric":{"a":"1","a":"2"}}]"#), "a label twice"),
        (result(r#"[{"metric":{},"metric":{}}]"#), "two metrics"),
        (result(r#"[{"metric":{},"values":[],"value":[1,"1"]}]"#), "two lists"),
        (result(r#"[{"metric":{"a":1}}]"#), "a string"),
        (result(r#"[{"metric":{},"values":[[1793477232,"1"],]}]"#), "a sample"),
        (result(r#"[{"metric":{},"values":[[1793477232,"1"][1793477233,"1"]]}]"#), "a comma"),
        (result(r#"[{"metric":{},"values":[[1793477232,1]]}]"#), "a string"),
        (result(r#"[{"metric":{},"values":[[1793477232,"1e"]]}]"#), "a number in a string"),
        (result(r#"[{"metric":{},"x":,"values":[]}]"#), "a value"),
        (
            result(r#"[{"metric":{"a":"1"}},{"metric":{"a":"1"}}]"#),
            r#"{a="1"} is in the answer twice"#,
        ),
        (
            result(r#"[{"metric":{},"values":[[1793477233,"1"],[1793477232,"1"]]}]"#),
            "do not increase",
        ),
        (
            result(r#"[{"metric":{},"values":[[1793477232,"1"],[1793477232,"2"]]}]"#),
            "do not increase",
        ),
    ] {
        let error = scan_text(&text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn an_error_stays_after_more_is_fed() {
    let mut scanner = Scanner::new(Limits::default());
    let first = scanner.feed(b" nonsense").unwrap_err();
    assert_eq!(first, ScanError::Malformed { at: 1, expected: "an object" });
    assert_eq!(scanner.feed(b"{}").unwrap_err(), first);
    assert_eq!(scanner.finish().unwrap_err(), first);
}

#[test]
fn an_answer_beyond_its_limits_is_an_error() {
    let sample = |i: u32| format!("[{},\"0.5\"]", 1_793_477_232 + i);
    let samples: Vec<String> = (0..300).map(sample).collect();
    let series =
        |name: &str| format!(r#"{{"metric":{{"a":"{name}"}},"values":[{}]}}"#, samples.join(","));
    let text = format!(
        r#"{{"status":"success","data":{{"resultType":"matrix","result":[{},{}]}}}}"#,
        series("1"),
        series("2")
    );
    let within = |limits: Limits| scan_within(limits, &[text.as_bytes()]);
    let limits =
        Limits { series_max: 2, samples_max: 600, label_bytes_max: 140, text_bytes_max: 10 };
    assert!(within(limits).is_ok());
    for (limits, message) in [
        (Limits { series_max: 1, ..limits }, "more than 1 series"),
        (Limits { samples_max: 599, ..limits }, "more than 599 samples"),
        (Limits { label_bytes_max: 100, ..limits }, "more than 100 bytes of labels"),
        (Limits { text_bytes_max: 9, ..limits }, "a shorter string"),
    ] {
        let error = within(limits).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

/// What is kept of a token is read again with each chunk.
#[test]
fn whitespace_within_a_token_is_not_kept_for_ever() {
    let sample =
        r#"{"status":"success","data":{"resultType":"matrix","result":[{"values":[[1,"1"]"#;
    for before in [
        r#"{"status":"success","#.to_owned(),
        r#"{"status""#.to_owned(),
        r#"{"data":{"result":["#.to_owned(),
        format!("{sample},"),
        format!("{sample},["),
    ] {
        let mut scanner = Scanner::new(Limits::default());
        scanner.feed(before.as_bytes()).unwrap();
        let mut fed = 0;
        let error = loop {
            fed += 4096;
            assert!(fed < 100_000, "{before}: {fed} bytes of whitespace are kept");
            if let Err(error) = scanner.feed(&[b' '; 4096]) {
                break error;
            }
        };
        assert!(error.to_string().contains("less whitespace"), "{before}: {error}");
    }
    // Between tokens there may be as much as one likes.
    let mut scanner = Scanner::new(Limits::default());
    scanner.feed(br#"{"status":"error""#).unwrap();
    (0..100).for_each(|_| scanner.feed(&[b'\n'; 4096]).unwrap());
    scanner.feed(b"}").unwrap();
}
