//! Tests of the service: that it tells nobody more than the own /proc, and that nobody can keep it from serving.
//!
//! The service runs as systemd starts it: root opens the socket, and the service has a user of its own and two
//! capabilities. Callers of other kinds are this very program, started again as `helper`, in surroundings of their own.

mod callers;
mod daemon;
mod helper;
mod robust;
mod values;
