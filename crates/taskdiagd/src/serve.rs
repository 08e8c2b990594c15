//! The loop of the service: one thread that waits for connections and questions, and never for a
//! single client.
//!
//! A question is one message, and its reply always fits into the socket's empty send buffer. So the
//! service keeps only the connection of a client, and one question if its user has to wait. A
//! client is disconnected if it sends half a question, or another one before it has read the reply.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::net::SocketFlags;
use taskdiag::Groups;
use taskdiag::service::{ASK_MAX, Ask, MAX_AGE, Refusal, Reply, sock};
use taskdiag::wire::decode::Command;
use taskdiag::wire::{Features, NlMsgHdr, Plain, Strategy, VERSION, build, decode_request};

use crate::accounts::Accounts;
use crate::answers::{Answer, Answers};
use crate::caller::{Own, Peer};
use crate::fair::Fair;
use crate::say::say;

/// The largest number of connections at a time.
pub const CONNECTIONS: usize = 1024;
/// A connection without questions for this long is closed.
const QUIET: Duration = Duration::from_secs(60);
/// How often old connections and accounts are looked for.
const TIDY: Duration = Duration::from_secs(5);
/// The largest number of connections that are accepted before questions are answered again.
const ACCEPTS: usize = 1024;
/// The largest number of connections that wait to be accepted on a socket of our own; `Backlog=` of
/// taskdiagd.socket says the same. They are accepted in order, so a user who connects all the time
/// can delay others by this many. Beyond that, clients read /proc at once. The service cannot
/// change it later with listen(2), because that would make the service the listener, and clients
/// trust root.
pub const BACKLOG: i32 = 256;
/// The number of the listening socket among the events.
const LISTENER: u64 = 0;

#[derive(Debug)]
struct Connection {
    fd: OwnedFd,
    peer: Peer,
    /// The time of the client's last question.
    last: Instant,
    /// Until then, the account of its user is empty, and nothing is read.
    parked: Option<Instant>,
    /// A question that was read already, and waits for the account.
    held: Option<Question>,
}

/// A question that was received.
#[derive(Debug)]
struct Question {
    from: u64,
    sender: Option<i32>,
    at: Instant,
    ask: Option<Ask>,
    /// Was it put on hold, so that nothing is read from its connection until it is answered?
    was_held: bool,
}

/// The service.
#[derive(Debug)]
pub struct Server {
    listener: OwnedFd,
    epoll: OwnedFd,
    connections: HashMap<u64, Connection>,
    /// The parked connections. The list may still contain closed ones.
    parked: Vec<u64>,
    /// The most connections at a time.
    room: usize,
    next: u64,
    fair: Fair,
    accounts: Accounts,
    answers: Answers,
    own: Result<Own, String>,
}

impl Server {
    /// A server on a listening socket. It keeps at most `room` connections at a time.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn new(listener: OwnedFd, room: usize, accounts: Accounts) -> std::io::Result<Server> {
        rustix::net::sockopt::set_socket_passcred(&listener, true)?;
        refuse_descriptors(&listener);
        rustix::io::ioctl_fionbio(&listener, true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let on = epoll::EventFlags::IN;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), on)?;
        let own = Own::look();
        if let Err(why) = &own {
            say(format_args!("it refuses all requests, because {why}"));
        }
        Ok(Server {
            listener,
            epoll,
            connections: HashMap::new(),
            parked: Vec::new(),
            room,
            next: LISTENER + 1,
            fair: accounts.load(Instant::now()),
            accounts,
            answers: Answers::new(),
            own,
        })
    }

    /// Serves until there are no questions for `idle`, if it is given.
    ///
    /// # Errors
    /// The errors of the system. Errors of single clients only close their connections.
    pub fn run(&mut self, idle: Option<Duration>) -> std::io::Result<()> {
        let mut events = Vec::with_capacity(256);
        let mut busy = Instant::now();
        let mut tidied = busy;
        loop {
            let now = Instant::now();
            let mut wake = now + TIDY;
            // A time that no clock reaches is never over.
            if let Some(end) = idle.and_then(|idle| busy.checked_add(idle)) {
                if now >= end {
                    self.accounts.save(&mut self.fair, None, now);
                    return Ok(());
                }
                wake = wake.min(end);
            }
            let mut questions = self.unpark(now, &mut wake);
            wake = self.answers.tidy(now).map_or(wake, |at| wake.min(at));
            if now >= tidied + TIDY {
                tidied = now;
                self.close_quiet(now);
                self.fair.tidy(now);
                self.accounts.save(&mut self.fair, None, now);
            }
            let wait = wake.saturating_duration_since(now);
            let timeout =
                Timespec { tv_sec: wait.as_secs() as _, tv_nsec: wait.subsec_nanos().into() };
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&timeout),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            for event in &events {
                let flags = event.flags;
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    // The client is gone. These events cannot be turned off, so a parked connection
                    // would wake the loop over and over.
                    gone if flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR) => {
                        self.close(gone);
                    }
                    from => questions.extend(self.receive(from)),
                }
            }
            if !questions.is_empty() {
                busy = Instant::now();
            }
            for question in questions {
                self.answer_or_hold(question);
            }
        }
    }

    fn accept(&mut self) -> std::io::Result<()> {
        for _ in 0..ACCEPTS {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let fd = match rustix::net::accept_with(&self.listener, flags) {
                Ok(fd) => fd,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                // There are no descriptors left. Waiting clients are served when others have gone.
                Err(
                    rustix::io::Errno::MFILE | rustix::io::Errno::NFILE | rustix::io::Errno::NOMEM,
                ) => {
                    std::thread::sleep(Duration::from_millis(10));
                    return Ok(());
                }
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => continue,
                Err(e) => return Err(e.into()),
            };
            let now = Instant::now();
            let Ok(peer) = Peer::of(fd.as_fd()) else { continue };
            if !self.fair.enter(peer.uid, now) {
                continue;
            }
            if self.connections.len() >= self.room {
                let begin = cpu_time();
                self.make_room();
                self.fair.charge(peer.uid, cpu_time().saturating_sub(begin), now);
            }
            let (id, uid) = (self.next, peer.uid);
            self.next += 1;
            let on = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
            match epoll::add(&self.epoll, &fd, epoll::EventData::new_u64(id), on) {
                Ok(()) => {
                    let new = Connection { fd, peer, last: now, parked: None, held: None };
                    self.connections.insert(id, new);
                }
                Err(_) => self.fair.leave(uid, now),
            }
        }
        Ok(())
    }

    /// The question on a connection, if it is one. A connection that has ended, or that does not
    /// keep to the protocol, is closed.
    fn receive(&mut self, from: u64) -> Option<Question> {
        let at = Instant::now();
        let connection = self.connections.get_mut(&from)?;
        if let Some(wait) = self.fair.wait(connection.peer.uid, at) {
            self.park(from, at + wait, None);
            return None;
        }
        let mut bytes = [0; ASK_MAX + 1];
        match sock::receive(connection.fd.as_fd(), &mut bytes, false) {
            Ok(got) if got.len > 0 && !got.is_odd && !has_unread(&connection.fd) => {
                connection.last = at;
                // This waits for the first question, because it costs more than accepting a
                // connection.
                connection.peer.hold(connection.fd.as_fd());
                let ask = Ask::decode(&bytes[..got.len]);
                Some(Question { from, sender: got.pid, at, ask, was_held: false })
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => None,
            _ => {
                self.close(from);
                None
            }
        }
    }

    /// Stops reading from a connection until then.
    fn park(&mut self, id: u64, until: Instant, held: Option<Question>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.parked.is_none() {
            self.parked.push(id);
        }
        (connection.parked, connection.held) = (Some(until), held);
        let off = epoll::EventFlags::empty();
        let data = epoll::EventData::new_u64(id);
        if epoll::modify(&self.epoll, &connection.fd, data, off).is_err() {
            self.close(id);
        }
    }

    /// Answers a question. If the account of its user was used up by other questions since it was
    /// read, only an existing answer is used.
    fn answer_or_hold(&mut self, mut question: Question) {
        let (id, now) = (question.from, Instant::now());
        let Some(connection) = self.connections.get(&id) else { return };
        let wait = self.fair.wait(connection.peer.uid, now);
        if let Some(wait) = wait.filter(|_| !is_made(&self.answers, &question)) {
            question.was_held = true;
            return self.park(id, now + wait, Some(question));
        }
        self.answer(&question);
        if question.was_held {
            self.listen(id);
        }
    }

    /// Reads from a connection again.
    fn listen(&self, id: u64) {
        if let Some(connection) = self.connections.get(&id) {
            let on = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
            // If this fails, the connection is closed later, when it has been quiet for long.
            let _ = epoll::modify(&self.epoll, &connection.fd, epoll::EventData::new_u64(id), on);
        }
    }

    fn answer(&mut self, question: &Question) {
        let begin = cpu_time();
        let Some(connection) = self.connections.get_mut(&question.from) else { return };
        let uid = connection.peer.uid;
        let told = self.own.as_ref().map_err(|_| Refusal::Mounts).and_then(|own| {
            own.judge(&mut connection.peer, question.sender, question.at)?;
            if is_made(&self.answers, question) {
                return tell(&mut self.answers, question);
            }
            if !own.is_plain() {
                return Err(Refusal::Mounts);
            }
            self.accounts.save(&mut self.fair, Some(uid), Instant::now());
            let told = tell(&mut self.answers, question)?;
            // The walk took time. If the process has ended since, another one may hold the socket.
            match connection.peer.is_alive() {
                true => Ok(told),
                false => Err(Refusal::UnknownCaller),
            }
        });
        let (bytes, file) = match &told {
            Ok(Told::Bytes(bytes)) => {
                ([&Reply::Here(bytes.len() as u64).encode()[..], bytes].concat(), None)
            }
            Ok(Told::File(shared, len)) => {
                (Reply::File(*len).encode().to_vec(), Some(shared.as_fd()))
            }
            Err(why) => (Reply::Refused(*why).encode().to_vec(), None),
        };
        let is_over = told.as_ref().is_err_and(|why| lasts(*why, &connection.peer));
        let sent = sock::send(connection.fd.as_fd(), &bytes, file);
        let is_sent = sent.is_ok_and(|n| n == bytes.len());
        drop(told);
        // A caller that breaks the protocol, or that would be refused again, is disconnected. The
        // latter can connect again.
        if !is_sent || question.ask.is_none() || is_over {
            self.close(question.from);
        }
        self.fair.charge(uid, cpu_time().saturating_sub(begin), Instant::now());
    }

    /// Resumes the connections whose users may ask again. Returns their questions on hold, the
    /// oldest first, and lowers `wake` to the time at which the next user may ask.
    fn unpark(&mut self, now: Instant, wake: &mut Instant) -> Vec<Question> {
        let (mut held, mut idle) = (Vec::new(), Vec::new());
        let connections = &mut self.connections;
        self.parked.retain(|id| {
            let Some(connection) = connections.get_mut(id) else { return false };
            match connection.parked {
                Some(until) if until <= now => {
                    connection.parked = None;
                    match connection.held.take() {
                        Some(question) => held.push(question),
                        None => idle.push(*id),
                    }
                    false
                }
                Some(until) => {
                    *wake = until.min(*wake);
                    true
                }
                None => false,
            }
        });
        idle.into_iter().for_each(|id| self.listen(id));
        if !held.is_empty() {
            *wake = now;
        }
        held.sort_by_key(|q| q.at);
        held
    }

    /// Closes the connection that has been quiet longest, of the user with the most connections. So
    /// users with few connections always get one.
    fn make_room(&mut self) {
        let rank = |c: &Connection| (self.fair.connections(c.peer.uid), Reverse(c.last));
        let of = self.connections.iter().max_by_key(|(_, c)| rank(c)).map(|(id, _)| *id);
        if let Some(id) = of {
            self.close(id);
        }
    }

    fn close_quiet(&mut self, now: Instant) {
        let quiet = self.connections.iter().filter(|(_, c)| now >= c.last + QUIET);
        for id in quiet.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.close(id);
        }
    }

    fn close(&mut self, id: u64) {
        if let Some(connection) = self.connections.remove(&id) {
            self.fair.leave(connection.peer.uid, Instant::now());
        }
    }
}

/// The content of a reply.
enum Told<'a> {
    Bytes(std::borrow::Cow<'a, [u8]>),
    File(&'a OwnedFd, u64),
}

/// The request of a question.
enum RequestedData {
    Features,
    /// An answer whose walk began at this moment or later.
    Tasks(Strategy, Groups, Instant),
}

fn wanted(answers: &Answers, question: &Question) -> Result<RequestedData, Refusal> {
    let ask = question.ask.as_ref().ok_or(Refusal::BadRequest)?;
    match decode_request(&ask.request, all_groups(answers)).map_err(|_| Refusal::BadRequest)? {
        Command::Features => Ok(RequestedData::Features),
        Command::Get(req) => {
            let strategy = req.strategy().ok_or(Refusal::BadRequest)?;
            if req.pid != 0 {
                return Err(Refusal::BadRequest);
            }
            let age = ask.max_age.min(MAX_AGE);
            let not_before = question.at.checked_sub(age).unwrap_or(question.at);
            Ok(RequestedData::Tasks(strategy, req.groups(), not_before))
        }
        _ => Err(Refusal::BadRequest),
    }
}

/// Does an answer to this question exist already?
fn is_made(answers: &Answers, question: &Question) -> bool {
    match wanted(answers, question) {
        Ok(RequestedData::Tasks(strategy, groups, not_before)) => {
            answers.made(strategy, groups, not_before).is_some()
        }
        _ => false,
    }
}

/// The answer to a question of a caller that passed the checks.
fn tell<'a>(answers: &'a mut Answers, question: &Question) -> Result<Told<'a>, Refusal> {
    match wanted(answers, question)? {
        RequestedData::Features => Ok(Told::Bytes(features(all_groups(answers)).into())),
        RequestedData::Tasks(strategy, groups, not_before) => {
            Ok(match answers.get(strategy, groups, not_before)? {
                Answer::Here(bytes) => Told::Bytes(bytes.into()),
                Answer::File { shared, len, .. } => Told::File(shared, *len),
            })
        }
    }
}

/// Would this caller be refused again on the same connection?
fn lasts(why: Refusal, peer: &Peer) -> bool {
    use Refusal::{Confined, Mounts, PidNamespace, TimeNamespace, UnknownCaller, UserNamespace};
    match why {
        PidNamespace | UserNamespace | TimeNamespace | Mounts | Confined => true,
        UnknownCaller => !peer.is_alive(),
        _ => false,
    }
}

fn all_groups(answers: &Answers) -> Groups {
    answers.groups(Strategy::All) | answers.groups(Strategy::AllThread)
}

fn features(groups: Groups) -> Vec<u8> {
    let strategies = 1 << Strategy::All as u64 | 1 << Strategy::AllThread as u64;
    let body = build!(Features { version: VERSION, groups: groups.bits(), strategies });
    let len = (size_of::<NlMsgHdr>() + size_of::<Features>()) as u32;
    let kind = taskdiag::wire::MSG_FEATURES;
    [NlMsgHdr { len, kind, ..NlMsgHdr::default() }.as_bytes(), body.as_bytes()].concat()
}

/// Has the client not read our last reply?
fn has_unread(connection: &OwnedFd) -> bool {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int there.
    let rc = unsafe { libc::ioctl(connection.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    rc != 0 || bytes != 0
}

/// Makes the kernel refuse messages with descriptors, since Linux 6.16. Older kernels drop them.
fn refuse_descriptors(listener: &OwnedFd) {
    const SO_PASSRIGHTS: libc::c_int = 83;
    let off: libc::c_int = 0;
    let len = size_of_val(&off) as libc::socklen_t;
    // SAFETY: the kernel reads one int. An older kernel does not know the option, which does no
    // harm.
    unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            len,
        );
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::{UnixListener, UnixStream};

    /// A server on a separate socket, which runs in the thread of the test.
    struct Here {
        dir: tempfile::TempDir,
        server: Server,
    }

    impl Here {
        fn new() -> Here {
            let dir = tempfile::tempdir().expect("a directory");
            let listener = UnixListener::bind(dir.path().join("socket")).expect("a socket");
            let server = Server::new(listener.into(), CONNECTIONS, Accounts::default())
                .expect("it can listen");
            Here { dir, server }
        }
        fn connect(&self) -> UnixStream {
            UnixStream::connect(self.dir.path().join("socket")).expect("it listens")
        }
        /// Serves until there are no questions for this long. Returns the CPU time used.
        fn run(&mut self, idle: Duration) -> Duration {
            let begin = cpu_time();
            self.server.run(Some(idle)).expect("it serves");
            cpu_time() - begin
        }
        /// Serves until this is true. The CPU time that it took.
        fn run_until(&mut self, what: &str, is_true: impl Fn(&Server) -> bool) -> Duration {
            let (mut took, begin) = (Duration::ZERO, Instant::now());
            while !is_true(&self.server) {
                assert!(begin.elapsed() < Duration::from_secs(50), "{what}");
                took += self.run(Duration::from_millis(20));
            }
            took
        }
        /// Serves until there are this many connections.
        fn run_until_connected(&mut self, n: usize) {
            self.run_until("they are connected", |s| s.connections.len() == n);
        }
        /// Makes the user of this test wait for some seconds.
        fn exhaust(&mut self) {
            let uid = rustix::process::geteuid().as_raw();
            self.server.fair.charge(uid, Duration::from_secs(3), Instant::now());
        }
    }

    /// Asks for the supported groups, which needs no BPF.
    fn ask(stream: &UnixStream) {
        let request = taskdiag::wire::encode_features_request();
        let question = Ask::new(Duration::ZERO, request).encode();
        sock::send(stream.as_fd(), &question, None).expect("it is sent");
    }

    /// Asks for all processes.
    fn ask_for_tasks(stream: &UnixStream) {
        let req = taskdiag::wire::Req::new(Strategy::All, 0, Groups::BASE);
        let question = Ask::new(MAX_AGE, taskdiag::wire::encode_request(&req)).encode();
        sock::send(stream.as_fd(), &question, None).expect("it is sent");
    }

    /// The reply that has arrived, if there is one.
    fn reply(mut stream: &UnixStream) -> Option<Reply> {
        let mut bytes = [0; 4096];
        stream.set_nonblocking(true).expect("it is set");
        let len = stream.read(&mut bytes).ok()?;
        Reply::decode(bytes[..len].first_chunk()?)
    }

    #[test]
    fn a_client_that_leaves_while_it_is_parked_costs_nothing() {
        let mut here = Here::new();
        let client = here.connect();
        here.run_until_connected(1);
        here.exhaust();
        ask(&client);
        here.run_until("it is parked", |s| s.connections.values().all(|c| c.parked.is_some()));
        assert!(reply(&client).is_none());
        drop(client);
        let took = here.run_until("it is closed", |s| s.connections.is_empty())
            + here.run(Duration::from_millis(400));
        assert!(took < Duration::from_millis(30), "{took:?} of CPU time for nothing");
    }

    #[test]
    fn questions_of_one_batch_are_paid_one_by_one() {
        let mut here = Here::new();
        let clients: Vec<UnixStream> = (0..4).map(|_| here.connect()).collect();
        here.run_until_connected(4);
        clients[..3].iter().for_each(ask);
        ask_for_tasks(&clients[3]);
        let ids: Vec<u64> = here.server.connections.keys().copied().collect();
        let mut batch: Vec<Question> =
            ids.iter().filter_map(|id| here.server.receive(*id)).collect();
        batch.sort_by_key(|q| q.from);
        let mut batch = batch.into_iter();
        here.server.answer_or_hold(batch.next().expect("four"));
        assert!(reply(&clients[0]).is_some());
        // The first one has cost the whole account, and two seconds of refill.
        let uid = rustix::process::geteuid().as_raw();
        here.server.fair.charge(uid, Duration::from_millis(1000), Instant::now());
        here.server.answers.add(
            Strategy::All,
            Groups::BASE,
            Instant::now(),
            Answer::Here(Vec::new()),
        );
        batch.for_each(|q| here.server.answer_or_hold(q));
        assert!(reply(&clients[3]).is_some(), "this answer is there already");
        assert_eq!(clients.iter().filter_map(reply).count(), 0, "the others wait");
        assert_eq!(here.server.connections.values().filter(|c| c.held.is_some()).count(), 2);
        let is_held = |s: &Server| s.connections.values().any(|c| c.held.is_some());
        here.run_until("and are answered later", |s| !is_held(s));
        assert_eq!(clients.iter().filter_map(reply).count(), 2, "each once");
        ask(&clients[1]);
        here.run_until("and are read again", |_| reply(&clients[1]).is_some());
    }

    #[test]
    fn a_full_table_has_room_for_a_new_client() {
        let mut here = Here::new();
        here.server.room = 2;
        let first = here.connect();
        let second = here.connect();
        here.run_until_connected(2);
        ask(&first);
        here.run_until("it is answered", |_| reply(&first).is_some());
        let third = here.connect();
        ask(&third);
        here.run_until("it is served", |_| reply(&third).is_some());
        assert_eq!(here.server.connections.len(), 2);
        ask(&first);
        here.run_until("it has asked, so it stays", |_| reply(&first).is_some());
        assert_eq!((&second).read(&mut [0]).ok(), Some(0), "it never asked");
    }

    #[test]
    fn a_caller_that_would_be_refused_again_is_disconnected() {
        let mut here = Here::new();
        here.server.own = Err(String::from("a test wants it so"));
        let client = here.connect();
        ask(&client);
        let said = std::cell::Cell::new(None);
        here.run_until("it is refused", |_| {
            said.set(reply(&client));
            said.get().is_some()
        });
        assert_eq!(said.get(), Some(Reply::Refused(Refusal::Mounts)));
        assert!(here.server.connections.is_empty());
    }

    #[test]
    fn a_service_with_the_longest_idle_time_runs() {
        let mut here = Here::new();
        let mut client = here.connect();
        ask(&client);
        // The server thread never ends, and the process of the tests does not wait for it.
        std::thread::spawn(move || here.server.run(Some(Duration::MAX)));
        let mut head = [0; Reply::LEN];
        client.read_exact(&mut head).expect("it runs");
        assert!(Reply::decode(&head).is_some());
    }
}
