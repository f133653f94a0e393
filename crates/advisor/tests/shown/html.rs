//! The report for a browser. `target/tmp/report.html` is a sample to look at.

use advisor::model::advice::Advice;
use advisor::report::{Choice, Heading, Summary, html};
use proptest::prelude::*;

use super::made::{advice, amounts, any, failed, hostile, recorded};

pub fn heading() -> Heading<'static> {
    let made_at = "2026-11-18T21:05:00Z".parse().unwrap();
    Heading { source: "https://prometheus.example.com", made_at }
}

fn shown(made: &[Advice]) -> String {
    let mut text = String::new();
    html::write(&Summary::new(made, Choice::default()), &heading(), &mut text).unwrap();
    text
}

/// The elements of a page, which fails if it is not well-formed.
fn elements(text: &str) -> Vec<String> {
    let text = text.strip_prefix("<!doctype html>").unwrap();
    let page = roxmltree::Document::parse(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let elements = page.descendants().filter(roxmltree::Node::is_element);
    let mut ids = std::collections::BTreeSet::new();
    let names = elements.map(|node| {
        for attribute in node.attributes() {
            assert!(!attribute.name().starts_with("on"), "{attribute:?}");
            let drawn = attribute.name() == "d" || attribute.name() == "y";
            let number = !attribute.value().contains("NaN") && !attribute.value().contains("inf");
            assert!(!drawn || number, "{attribute:?}");
            assert!(attribute.name() != "id" || ids.insert(attribute.value()), "{attribute:?}");
        }
        node.tag_name().name().to_owned()
    });
    names.collect()
}

#[test]
fn a_sample_is_written_to_look_at() {
    let mut made = recorded();
    let more = [
        ("checkout", 12, [1.0, 2.0, 0.18], [2048.0, 4096.0, 611.0]),
        ("search", 6, [2.0, 4.0, 0.42], [8192.0, 8192.0, 3120.0]),
        ("recommendations-cache", 3, [0.5, 1.0, 0.31], [4096.0, 4096.0, 1830.0]),
        ("payments", 4, [0.25, 0.5, 0.72], [512.0, 768.0, 790.0]),
        ("frontend", 9, [0.2, 0.4, 0.11], [256.0, 512.0, 197.0]),
    ];
    made.extend(more.map(|(name, pods, cpu, memory)| advice(name, pods, amounts(cpu, memory))));
    made.push(failed("lost", "the query timed out after 30 s"));
    let text = shown(&made);
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/report.html"), &text).unwrap();
    let elements = elements(&text);
    // Of the pairs, one was not measured.
    assert_eq!(elements.iter().filter(|name| *name == "svg").count(), 2 * (9 + 5));
}

#[test]
fn the_page_needs_nothing_else_and_runs_nothing() {
    let text = shown(&hostile());
    for element in elements(&text) {
        assert!(!["script", "img", "link", "iframe", "object"].contains(&element.as_str()));
    }
    for part in ["<script", "<img", "url(", "@import", "\"refresh\"", "\u{202e}"] {
        assert!(!text.contains(part), "{part}");
    }
    assert!(text.contains("default-src 'none'"));
    assert!(text.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
}

#[test]
fn every_plot_says_in_words_what_it_shows() {
    let made = [advice("web", 3, amounts([1.0, 2.0, 0.25], [512.0, 1024.0, 640.0]))];
    let text = shown(&made);
    let text = text.strip_prefix("<!doctype html>").unwrap();
    let page = roxmltree::Document::parse(text).unwrap();
    let with = |name: &'static str| page.descendants().filter(move |it| it.has_tag_name(name));
    let words: Vec<&str> = with("desc").filter_map(|it| it.text()).collect();
    assert_eq!(
        words,
        [
            "Medians of 14 boxes from 105m to 150m, highest use 250m. Limit 2. Request 1. \
             Recommended 250m.",
            "Medians of 14 boxes from 269 MiB to 384 MiB, highest use 640 MiB. Limit 1 GiB. \
             Request 512 MiB. Recommended 640 MiB.",
        ]
    );
    let labels: Vec<&str> = with("svg").filter_map(|it| it.attribute("aria-labelledby")).collect();
    assert_eq!(labels, ["cpu0t cpu0d", "memory0t memory0d"]);
}

#[test]
fn only_the_first_two_hundred_have_plots() {
    let mut made: Vec<Advice> = (0..230)
        .map(|i| advice(&format!("c{i}"), 1, amounts([1.0, 2.0, 1.0], [64.0, 64.0, 64.0])))
        .collect();
    made.push(advice("killed", 1, amounts([1.0, 2.0, 1.0], [64.0, 64.0, 96.0])));
    let text = shown(&made);
    assert_eq!(text.matches("<article").count(), 200);
    assert!(text.contains("The first 200 of 231 containers"));
    // The one at risk is the first of them.
    let first = text.split("<article").nth(1).unwrap();
    assert!(first.contains("killed"), "{first}");
    assert!(text.len() < 3_000_000, "{}", text.len());
}

#[test]
fn a_page_of_nothing_is_a_page() {
    let text = shown(&[]);
    elements(&text);
    assert!(text.contains("0 containers"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_page_is_well_formed(made in any()) {
        elements(&shown(&made));
    }
}
