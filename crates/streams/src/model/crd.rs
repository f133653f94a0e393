//! The CustomResourceDefinitions of streams, as `deploy/crds` has them. Names, columns and enums are
//! those of the existing ones, so that either can replace the other; unknown fields of templates are
//! preserved. Kubernetes validates the rest of a template when a Job is created from it: a copy of its
//! schema would soon be outdated.

use serde_json::Value;

/// In the order of application.
const FILES: [&str; 3] = [
    include_str!("../../../../deploy/crds/streamclasses.yaml"),
    include_str!("../../../../deploy/crds/streamingjobtemplates.yaml"),
    include_str!("../../../../deploy/crds/backfillrequests.yaml"),
];

/// All definitions, in the order of application.
pub fn all() -> Vec<Value> {
    FILES.map(|file| serde_yaml_ng::from_str(file).expect("the files are valid YAML")).into()
}

/// The definitions as input for `kubectl apply -f -`.
pub fn yaml() -> String {
    FILES.join("---\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The names that clients of the existing definitions use.
    #[test]
    fn everything_that_others_go_by_is_as_it_was() {
        let all = all();
        let of = |i: usize| &all[i]["spec"];
        let names = |i: usize| {
            let names = &of(i)["names"];
            (names["plural"].clone(), names["shortNames"][0].clone(), of(i)["scope"].clone())
        };
        assert_eq!(names(0), (json!("streamclasses"), json!("sc"), json!("Cluster")));
        assert_eq!(names(1), (json!("streamingjobtemplates"), json!("sjt"), json!("Namespaced")));
        assert_eq!(names(2), (json!("backfillrequests"), json!("bfr"), json!("Namespaced")));
        let columns = |i: usize, n: usize| {
            let columns = of(i)["versions"][0]["additionalPrinterColumns"].as_array().unwrap();
            columns[..n].iter().map(|c| c["name"].as_str().unwrap()).collect::<Vec<_>>()
        };
        let class = ["ApiGroupRef", "ApiVersion", "KindRef", "PluralName", "Phase"];
        assert_eq!(columns(0, 5), class);
        assert_eq!(columns(1, 3), ["MemoryLimit", "CpuLimit", "Image"]);
        assert_eq!(columns(2, 3), ["StreamClass", "StreamId", "Completed"]);
        let selectable = &of(2)["versions"][0]["selectableFields"];
        let expected = json!([{ "jsonPath": ".spec.completed" }, { "jsonPath": ".spec.streamId" }]);
        assert_eq!(*selectable, expected);
        for i in [0, 2] {
            let phase = of(i)["versions"][0]
                .pointer("/schema/openAPIV3Schema/properties/status/properties/phase/enum");
            assert_eq!(phase, Some(&json!(["Pending", "Ready", "Failed", "Stopped"])));
        }
        for crd in &all {
            assert_eq!(crd["spec"]["group"], crate::model::GROUP);
            assert_eq!(crd["spec"]["versions"][0]["subresources"], json!({ "status": {} }));
        }
    }
}
