//! Tests that values of the types that programs pass between threads may be sent.

use std::sync::{Arc, mpsc};

use taskdiag::field::Context;
use taskdiag::files::Files;
use taskdiag::view::{Filter, Plan, Query};
use taskdiag::{
    Answer, Choice, Engine, EngineId, Error, Groups, Request, Session, Snapshot, Watch, query_with,
};

fn may_be_sent<T: Send>() {}
fn may_be_shared<T: Send + Sync>() {}
fn lives_as_long_as_it_likes<T: Send + Sync + 'static>() {}

#[test]
fn answers_sessions_and_queries_can_go_to_another_thread() {
    may_be_sent::<Session>();
    may_be_sent::<Context>();
    may_be_sent::<Files<'static>>();
    may_be_sent::<Box<dyn Engine>>();
    may_be_sent::<Query>();
    lives_as_long_as_it_likes::<Snapshot>();
    lives_as_long_as_it_likes::<Request>();
    lives_as_long_as_it_likes::<Plan>();
    lives_as_long_as_it_likes::<Watch>();
    may_be_shared::<Answer>();
    may_be_shared::<Error>();
    may_be_shared::<Filter>();
}

#[test]
fn a_request_of_another_thread_can_be_stopped() {
    let watch = Arc::new(Watch::new());
    let request = Request::all(Groups::BASE).with_watch(watch.clone());
    let (asked, go) = (mpsc::channel(), mpsc::channel());
    let asks = std::thread::spawn(move || {
        let ask = || query_with(&request, Choice::Only(EngineId::Procfs)).expect("/proc is there");
        let whole = ask();
        asked.0.send(()).expect("the other thread waits");
        go.1.recv().expect("the other thread stops it");
        (whole, ask())
    });
    asked.1.recv().expect("it asks");
    watch.stop();
    go.0.send(()).expect("it waits");
    let (whole, stopped) = asks.join().expect("it does not panic");
    assert!(whole.tasks().len() > 0 && whole.stream().done().error == 0);
    assert!(watch.progress().0 >= whole.tasks().len() as u64, "{:?}", watch.progress());
    assert_eq!((stopped.tasks().len(), stopped.stream().done().error), (0, -libc::EINTR));
}
