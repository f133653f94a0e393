//! Reads elements of `listRecommendations` back: what a client shows and what it makes patches of.

use serde_json::Value;

use crate::model::advice::Advice;
use crate::model::inventory::Member;
use crate::model::notice::{Notice, Notices};
use crate::model::recommendation::{
    Available, BoxPlot, EngineResult, Formats, MigProfile, Plots, Recommendation, Resources,
    Sizing, Slot, SlotUsage, Snapshot, Term, TermResult,
};

/// An element that is not as this version writes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{experiment}: `{field}` is missing or not as expected")]
pub struct Unreadable {
    experiment: String,
    field: &'static str,
}

/// The newest recommendation of each container or namespace of an element.
pub fn advice(element: &Value) -> Result<Vec<Advice>, Unreadable> {
    let experiment = text(element, "experiment_name").unwrap_or_default();
    let unreadable = |field| Unreadable { experiment: experiment.clone(), field };
    let objects = element["kubernetes_objects"].as_array();
    let objects = objects.ok_or_else(|| unreadable("kubernetes_objects"))?;
    let mut all = Vec::new();
    for object in objects {
        let namespace = text(object, "namespace").map_err(unreadable)?;
        if let Some(whole) = object.get("namespaces") {
            let outcome = outcome(&whole["recommendations"]).map_err(unreadable)?;
            let member = Member::of_namespace(&namespace, 1);
            all.push(Advice { member, experiment: experiment.clone(), outcome });
        }
        for container in object["containers"].as_array().into_iter().flatten() {
            let member = Member {
                namespace: namespace.clone(),
                workload: text(object, "name").map_err(unreadable)?,
                workload_type: text(object, "type").map_err(unreadable)?,
                container: text(container, "container_name").map_err(unreadable)?,
                image: text(container, "container_image_name").unwrap_or_default(),
                pods: 1,
                shared_name: false,
            };
            let outcome = outcome(&container["recommendations"]).map_err(unreadable)?;
            all.push(Advice { member, experiment: experiment.clone(), outcome });
        }
    }
    Ok(all)
}

type Read<T> = Result<T, &'static str>;

fn outcome(recommendations: &Value) -> Read<Result<Recommendation, String>> {
    Ok(Ok(Recommendation {
        notices: notices(recommendations)?,
        formats: Formats::PROMETHEUS,
        latest: latest(&recommendations["data"])?,
        runtimes: Vec::new(),
    }))
}

fn latest(data: &Value) -> Read<Option<Snapshot>> {
    let by_time = data.as_object().ok_or("data")?;
    // Times of one form and zone are in the order of their texts.
    let Some((_, newest)) = by_time.iter().max_by_key(|(time, _)| *time) else { return Ok(None) };
    let [short, medium, long] = Term::ALL;
    let terms = &newest["recommendation_terms"];
    Ok(Some(Snapshot {
        monitoring_end_ms: time(newest, "monitoring_end_time")?,
        notices: notices(newest)?,
        current: sizing(&newest["current"]),
        terms: [term(short, terms)?, term(medium, terms)?, term(long, terms)?],
    }))
}

fn term(term: Term, terms: &Value) -> Read<TermResult> {
    let value = &terms[term.as_str()];
    let available = value.get("recommendation_engines").map(|engines| -> Read<Available> {
        Ok(Available {
            monitoring_start_ms: time(value, "monitoring_start_time")?,
            cost: engine(&engines["cost"])?,
            performance: engine(&engines["performance"])?,
            plots: value.get("plots").map(plots).transpose()?,
        })
    });
    Ok(TermResult {
        term,
        duration_hours: number(value, "duration_in_hours")?,
        notices: notices(value)?,
        available: available.transpose()?,
    })
}

fn engine(value: &Value) -> Read<EngineResult> {
    let pods = value["pods_count"].as_i64().and_then(|pods| pods.try_into().ok());
    let limits = value["config"]["limits"].as_object();
    Ok(EngineResult {
        pods_count: pods.ok_or("pods_count")?,
        confidence_level: number(value, "confidence_level")?,
        config: sizing(&value["config"]),
        accelerator: limits
            .and_then(|limits| limits.keys().find_map(|it| MigProfile::of_resource(it))),
        variation: sizing(&value["variation"]),
        notices: notices(value)?,
    })
}

fn sizing(value: &Value) -> Sizing {
    let amount = |section: &str, resource: &str| value[section][resource]["amount"].as_f64();
    let resources =
        |section| Resources { cpu: amount(section, "cpu"), memory: amount(section, "memory") };
    Sizing { requests: resources("requests"), limits: resources("limits") }
}

fn plots(value: &Value) -> Read<Plots> {
    let slots = value["plots_data"].as_object().ok_or("plots_data")?.iter();
    let slot = |(end, boxes): (&String, &Value)| {
        let usage = boxes.get("cpuUsage").map(|cpu| -> Read<SlotUsage> {
            Ok(SlotUsage { cpu: box_plot(cpu)?, memory: box_plot(&boxes["memoryUsage"])? })
        });
        Ok(Slot { end_ms: parse(end).ok_or("plots_data")?, usage: usage.transpose()? })
    };
    Ok(Plots { slots: slots.map(slot).collect::<Read<_>>()? })
}

fn box_plot(value: &Value) -> Read<BoxPlot> {
    let number = |name: &'static str| number(value, name);
    let (q1, median, q3) = (number("q1")?, number("median")?, number("q3")?);
    Ok(BoxPlot { min: number("min")?, q1, median, q3, max: number("max")? })
}

/// Codes that this version does not know are left out.
fn notices(value: &Value) -> Read<Notices> {
    let codes = value["notifications"].as_object().ok_or("notifications")?.keys();
    let known =
        |code: &String| Notice::ALL.iter().copied().find(|it| it.code().to_string() == *code);
    Ok(codes.filter_map(known).collect())
}

fn text(value: &Value, field: &'static str) -> Read<String> {
    value[field].as_str().map(str::to_owned).ok_or(field)
}

fn number(value: &Value, field: &'static str) -> Read<f64> {
    value[field].as_f64().ok_or(field)
}

fn time(value: &Value, field: &'static str) -> Read<i64> {
    value[field].as_str().and_then(parse).ok_or(field)
}

fn parse(text: &str) -> Option<i64> {
    crate::model::time::parse(text).ok().map(|time| time.as_millisecond())
}
