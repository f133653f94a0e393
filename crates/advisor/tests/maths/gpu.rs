//! GPUs: each row of the recorded table, with everything that was known by then.

use advisor::decide::maths::buckets::Scope;
use advisor::decide::maths::columns::Series;
use advisor::decide::maths::gpu::Accelerator;
use advisor::decide::maths::recommend::{Options, Recommender};
use advisor::model::notice::Notice;
use advisor::model::recommendation::Term;

use super::table::{CONTAINER, Comparison, Table, engine, workload};

#[test]
fn the_profiles_of_a_container_with_a_gpu_are_reproduced() {
    let name = "advisor-backend-api-gpu.expected.csv";
    let table = Table::read(name);
    let inputs = table.inputs(&CONTAINER);
    let maxima = ["Core", "Memory", "FrameBuffer"]
        .map(|kind| table.numbers(&format!("accelerator{kind}Usage_max")).unwrap());
    let options = Options { plots: false, ..Options::default() };
    let mut recommender = Recommender::new(options);
    let mut comparison = Comparison::default();
    let mut all = workload(Scope::Container, &table.end_ms, &inputs, table.end_ms.len());
    let [core, memory, frame_buffer] =
        maxima.each_ref().map(|values| Series::new(&table.end_ms, values).unwrap());
    let model = "NVIDIA A100-SXM4-40GB";
    all.accelerator = Some(Accelerator { model, core, memory, frame_buffer });
    let mut loaded = recommender.load(&all);
    for (row, end_ms) in table.end_ms.iter().enumerate() {
        let found = loaded.until(*end_ms).latest;
        for term in Term::ALL {
            for name in ["cost", "performance"] {
                let result = found.as_ref().and_then(|it| engine(it.term(term), name));
                let profile = result.and_then(|it| it.accelerator.as_ref());
                let column = format!("{name}_{}_accelerator_limits", term.as_str());
                let found = profile.map(|it| it.resource()).unwrap_or_default();
                let place = || format!("{column} of row {row}");
                comparison.text(table.cell(&column, row), &found, place);
                let says =
                    result.is_some_and(|it| it.notices.contains(Notice::AcceleratorAvailable));
                assert_eq!(says, profile.is_some());
            }
        }
    }
    comparison.finish(name, 1422 * 6);
}
