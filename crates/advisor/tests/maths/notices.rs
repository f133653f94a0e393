//! Codes, levels and messages are those of the recorded list, and no others.

use std::collections::BTreeMap;

use advisor::model::notice::Notice;

#[test]
fn every_notice_has_the_recorded_code_level_and_message() {
    let recorded = include_str!("../data/notification_codes.json");
    let recorded: BTreeMap<String, serde_json::Value> = serde_json::from_str(recorded).unwrap();
    let ours = Notice::ALL.iter().map(|notice| {
        let value = serde_json::json!({
            "type": notice.level().as_str(),
            "message": notice.message(),
            "code": notice.code(),
        });
        (notice.code().to_string(), value)
    });
    assert_eq!(ours.collect::<BTreeMap<_, _>>(), recorded);
}
