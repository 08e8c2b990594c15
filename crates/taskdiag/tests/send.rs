//! What programs hand from thread to thread may be.

use taskdiag::field::Context;
use taskdiag::files::Files;
use taskdiag::view::{Filter, Query};
use taskdiag::{Answer, Engine, Error, Request, Session, Snapshot};

fn may_be_sent<T: Send>() {}
fn may_be_shared<T: Send + Sync>() {}

#[test]
fn from_thread_to_thread() {
    may_be_sent::<Session>();
    may_be_sent::<Context>();
    may_be_sent::<Files<'static>>();
    may_be_sent::<Box<dyn Engine>>();
    may_be_sent::<Query>();
    may_be_shared::<Snapshot>();
    may_be_shared::<Request>();
    may_be_shared::<Answer>();
    may_be_shared::<Error>();
    may_be_shared::<Filter>();
}
