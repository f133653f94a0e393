//! The commands: each reads what it needs, and returns the change.

mod bulk;
mod datasource;
mod declared;
mod experiment;
mod metadata;
mod results;

pub use bulk::{CancelBulkJob, CreateBulkJob, CreatedJob, DeleteBulkJob};
pub use datasource::{DeleteDatasource, PutDatasource};
pub use declared::{Declare, Verb, title, unknown};
pub use experiment::{
    CreateExperiment, DeleteExperiment, RecommendExperiment, RequestedRecommendation,
};
pub use metadata::{DeleteMetadata, Import, ImportMetadata};
pub use results::{UploadResults, UploadedResults};
