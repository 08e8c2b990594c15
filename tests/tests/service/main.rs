//! Tests of the service: it shows each caller no more than the caller's own /proc, and no client
//! can keep it from serving.
//!
//! The service runs as systemd starts it: root opens the socket, and the service has a user of its
//! own and two capabilities. Callers of other kinds are this very program, started again as
//! `helper`, in surroundings of their own.

mod callers;
mod daemon;
mod helper;
mod robust;
mod values;
