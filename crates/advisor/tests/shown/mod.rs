//! How recommendations are shown: on the wire, and in reports.

mod csv;
mod html;
mod made;
mod summary;
mod table;
mod wire;
