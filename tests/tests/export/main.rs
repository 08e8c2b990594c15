//! Tests of `taskdiag export`: that judges which nobody here wrote read its metrics, that the
//! values are those of /proc and of process-exporter, and that no client can keep it from serving.

mod contrib;
mod exporter;
mod groups;
mod hostile;
mod judges;
mod otlp;
mod peer;
mod values;
