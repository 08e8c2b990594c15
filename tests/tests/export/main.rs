//! Tests of `taskdiag export`: independent programs can read its metrics, the values are the same
//! as in /proc and process-exporter, and no client can keep it from serving.

mod contrib;
mod exporter;
mod groups;
mod hostile;
mod judges;
mod otlp;
mod peer;
mod values;
