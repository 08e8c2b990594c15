//! Proves two things from the instructions of a program: pointers in objects that may be freed at
//! any time are followed only after a check, and values are checked again after they are read
//! (`docs/operate/safety.md`, "In which order").
//!
//! Such an object belongs to an owner, for example the mm of a task. Within each function:
//!
//! 1. A pointer that was loaded from the object is followed only after the owner's member was
//!    loaded again, later than the pointer, and compared with the object.
//! 2. After the last load from the object or through it, the owner's member is loaded again and
//!    compared, on each path to the end of the function. So everything that the function leaves in
//!    memory was read while the owner had the object.
//!
//! The values in registers and on the stack are tracked as expressions, such as "the member mm of
//! the initial value of r1". Two loads of the same member of the same object are the same
//! expression, so a check is a comparison of an expression with itself, or with the member of `st`
//! in which the object was kept. The relocations and `offsets.h` show which member a load reads.

use std::collections::{BTreeMap, BTreeSet};

use super::trim::insn::{self, Insn};

/// Members that point to an object that may be freed at once while its task lives.
const OWNERS: [&str; 7] = [
    "task_struct.mm",
    "task_struct.files",
    "task_struct.nsproxy",
    "task_struct.real_fs / fs",
    "task_struct.fs",
    "signal_struct.tty",
    "kthread.data",
];

/// BPF_FETCH: the old value is returned.
const FETCH: i32 = 1;

/// Additional facts about instructions.
pub struct InsnFacts<'a> {
    /// "struct.member" that the instruction was relocated for.
    pub member: &'a dyn Fn(usize) -> Option<String>,
    /// The member whose offset is at this place of the read-only data.
    pub offset: &'a dyn Fn(i64) -> Option<String>,
    /// The numbers of the maps with the read-only data and with `st`.
    pub rodata: i32,
    /// As above.
    pub bss: i32,
    /// The offset of the flag in the read-only data that the processor may reorder loads. If given,
    /// only the code for such a processor is looked at, and a check counts only if an instruction
    /// that orders loads comes before it.
    pub orders_loads: Option<i64>,
    /// The number in a call of `bpf_rdonly_cast`, which returns its argument.
    pub cast: Option<i32>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Expr {
    /// Unknown: the result of this instruction.
    Made(usize),
    /// The task that reads. It is running, so its objects are not freed.
    Reader,
    /// The value of a register at the start of the function.
    Argument(u8),
    Number(i64),
    /// An address in the map with `st`, in the read-only data, or on the stack.
    State(i64),
    ReadOnly(i64),
    Stack(i64),
    /// The offset of a member, from the kernel's types.
    Offset(String),
    /// May the processor reorder loads?
    Ordering,
    Plus(Box<Expr>, String),
    /// The value at an address: of a member of an object, or in `st`.
    Load(Box<Expr>, String),
}

/// A value in a register.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Val {
    is: Expr,
    /// The loads that it came from.
    sites: BTreeSet<usize>,
    /// If it is an owner's member: the unchecked loads from before it was loaded.
    covers: BTreeSet<usize>,
}

impl Val {
    fn of(is: Expr) -> Val {
        Val { is, sites: BTreeSet::new(), covers: BTreeSet::new() }
    }
}

/// The value without its offset.
fn base(e: &Expr) -> &Expr {
    match e {
        Expr::Plus(b, _) => base(b),
        e => e,
    }
}

/// Is it a member of an owner?
fn is_owned(e: &Expr) -> bool {
    matches!(e, Expr::Load(of, m) if **of != Expr::Reader && OWNERS.contains(&m.as_str()))
}

/// The object that an address is in, or that it was loaded through.
fn root<'e>(e: &'e Expr, kept: &BTreeSet<Expr>) -> Option<&'e Expr> {
    match e {
        e if is_owned(e) || kept.contains(e) => Some(e),
        Expr::Plus(b, _) | Expr::Load(b, _) => root(b, kept),
        _ => None,
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct State {
    regs: Vec<Val>,
    stack: BTreeMap<i64, Val>,
    /// Loads without a later check, and their objects.
    pending: BTreeMap<usize, Expr>,
    /// The loads among them that a later instruction orders.
    ordered: BTreeSet<usize>,
    /// Members of `st` to which an object was stored here.
    stored: BTreeMap<i64, Expr>,
}

impl State {
    fn join(&mut self, other: &State, at: usize) -> bool {
        let before = self.clone();
        let mix = |a: &mut Val, b: &Val| {
            if a.is != b.is {
                a.is = Expr::Made(at);
            }
            a.sites.extend(&b.sites);
            a.covers = a.covers.intersection(&b.covers).copied().collect();
        };
        self.regs.iter_mut().zip(&other.regs).for_each(|(a, b)| mix(a, b));
        self.stack.retain(|k, _| other.stack.contains_key(k));
        self.stack.iter_mut().for_each(|(k, a)| mix(a, &other.stack[k]));
        let ordered = |s: &State, of: &State| {
            // A load that is missing on one path needs no order there.
            let not =
                s.pending.keys().filter(|k| !of.pending.contains_key(k) || of.ordered.contains(k));
            not.filter(|k| s.ordered.contains(k)).copied().collect::<BTreeSet<_>>()
        };
        let both = ordered(self, other).into_iter().chain(ordered(other, self)).collect();
        self.ordered = both;
        self.pending.extend(other.pending.iter().map(|(k, v)| (*k, v.clone())));
        self.stored.retain(|k, v| other.stored.get(k) == Some(v));
        *self != before
    }
}

/// The number of the first object in `st`. Loads have the numbers of their instructions, which are
/// lower.
const KEPT: usize = 1 << 32;

/// The value of a member of `st`.
fn in_state(at: i64) -> Expr {
    Expr::Load(Box::new(Expr::State(at)), "st".into())
}

/// The first instructions of the functions.
fn functions(all: &[Insn]) -> Vec<usize> {
    let called = all.iter().enumerate().filter_map(|(pc, i)| i.function(pc));
    let set: BTreeSet<usize> = std::iter::once(0).chain(called).collect();
    set.into_iter().collect()
}

struct Checker<'a> {
    all: &'a [Insn],
    known: &'a InsnFacts<'a>,
    /// Members of `st` that keep an object: they are compared with an owner's member somewhere.
    kept: BTreeSet<Expr>,
    new_kept: BTreeSet<Expr>,
    wrong: BTreeSet<String>,
    /// The objects in members of `st` that a function compares with the owner's member on each path
    /// through it.
    compares: BTreeMap<usize, BTreeSet<Expr>>,
    /// The objects that were not compared at an end of the current function: numbers from `KEPT`
    /// on.
    not_compared: BTreeSet<usize>,
    /// Checks of objects that were loaded in the same function.
    checks: BTreeSet<usize>,
}

/// Returns the errors in the order of loads of a program, and the instructions that are checks.
pub fn check(insns: &[u8], known: &InsnFacts<'_>) -> (Vec<String>, BTreeSet<usize>) {
    let all: Vec<Insn> =
        insns.chunks_exact(insn::SIZE).map(|b| insn::decode(b).expect("an instruction")).collect();
    let (kept, new_kept) = (BTreeSet::new(), BTreeSet::new());
    let (wrong, checks) = (BTreeSet::new(), BTreeSet::new());
    let (compares, not_compared) = (BTreeMap::new(), BTreeSet::new());
    let mut c = Checker { all: &all, known, kept, new_kept, wrong, compares, not_compared, checks };
    loop {
        let before = (c.kept.clone(), c.compares.clone());
        c.wrong.clear();
        c.checks.clear();
        for f in functions(&all) {
            c.not_compared.clear();
            c.function(f);
            let kept = c.kept.iter().enumerate();
            let does = kept.filter(|(n, _)| !c.not_compared.contains(&(KEPT + n)));
            let does = does.map(|(_, e)| e.clone()).collect();
            c.compares.insert(f, does);
        }
        if before.1 == c.compares && c.new_kept.is_subset(&c.kept) {
            return (c.wrong.into_iter().collect(), c.checks);
        }
        c.kept.extend(c.new_kept.iter().cloned());
    }
}

impl Checker<'_> {
    fn function(&mut self, begin: usize) {
        let regs = (0..11).map(|r| Val::of(Expr::Argument(r))).collect::<Vec<_>>();
        // Starts as if something had been loaded from each object in `st`, to see whether each is
        // compared at the end.
        let before = self.kept.iter().enumerate().map(|(n, e)| (KEPT + n, e.clone())).collect();
        let mut first = State {
            regs,
            stack: BTreeMap::new(),
            pending: before,
            ordered: BTreeSet::new(),
            stored: BTreeMap::new(),
        };
        first.regs[10] = Val::of(Expr::Stack(0));
        let mut at: BTreeMap<usize, State> = BTreeMap::from([(begin, first)]);
        let mut todo: BTreeSet<usize> = BTreeSet::from([begin]);
        while let Some(pc) = todo.pop_first() {
            let mut s = at[&pc].clone();
            for next in self.step(begin, pc, &mut s) {
                let changed = match at.get_mut(&next) {
                    Some(old) => old.join(&s, next),
                    None => at.insert(next, s.clone()).is_none(),
                };
                if changed {
                    todo.insert(next);
                }
            }
        }
    }

    /// A load through an address.
    fn load(&mut self, begin: usize, pc: usize, s: &mut State, address: &Val, what: &str) {
        let Some(object) = root(&address.is, &self.kept).cloned() else { return };
        let through = address.sites.iter().find(|site| s.pending.contains_key(site));
        if *base(&address.is) != object && through.is_some() {
            self.wrong.insert(format!(
                "function {begin}: {pc} follows what {through:?} loaded, to {what}, before {object:?} is compared again"
            ));
        }
        s.ordered.remove(&pc);
        s.pending.insert(pc, object);
    }

    fn step(&mut self, begin: usize, pc: usize, s: &mut State) -> Vec<usize> {
        let i = &self.all[pc];
        let (dst, src) = (usize::from(i.dst), usize::from(i.src));
        let next = pc + if i.is_wide() { 2 } else { 1 };
        let member = (self.known.member)(pc);
        match i.class() {
            insn::LD => {
                let low = i64::from(self.all[pc + 1].imm);
                s.regs[dst] = Val::of(match i.src {
                    insn::MAP_IDX_VALUE if i.imm == self.known.bss => Expr::State(low),
                    insn::MAP_IDX_VALUE if i.imm == self.known.rodata => Expr::ReadOnly(low),
                    _ => Expr::Made(pc),
                });
            }
            insn::LDX => {
                let address = s.regs[src].clone();
                let off = i64::from(i.off);
                let name = member.unwrap_or_else(|| off.to_string());
                s.regs[dst] = match &address.is {
                    Expr::Stack(b) => {
                        s.stack.get(&(b + off)).cloned().unwrap_or(Val::of(Expr::Made(pc)))
                    }
                    Expr::ReadOnly(b) if Some(b + off) == self.known.orders_loads => {
                        Val::of(Expr::Ordering)
                    }
                    Expr::ReadOnly(b) => Val::of(match (self.known.offset)(b + off) {
                        Some(member) => Expr::Offset(member),
                        None => Expr::Made(pc),
                    }),
                    Expr::State(b) => Val::of(in_state(b + off)),
                    Expr::Made(_) | Expr::Number(_) | Expr::Offset(_) => Val::of(Expr::Made(pc)),
                    _ => self.loaded(begin, pc, s, &address, name),
                };
            }
            insn::ST | insn::STX => {
                if let Expr::State(b) = s.regs[dst].is {
                    s.stored.remove(&(b + i64::from(i.off)));
                    if i.class() == insn::STX && is_owned(&s.regs[src].is) {
                        s.stored.insert(b + i64::from(i.off), s.regs[src].is.clone());
                    }
                }
                if let Expr::Stack(b) = s.regs[dst].is {
                    let v = if i.class() == insn::STX && i.code & 0xe0 == insn::MEM {
                        s.regs[src].clone()
                    } else {
                        Val::of(Expr::Made(pc))
                    };
                    s.stack.insert(b + i64::from(i.off), v);
                }
                if i.code & 0xe0 == insn::ATOMIC {
                    // Only an atomic instruction that returns the old value is a barrier.
                    if i.imm & FETCH != 0 {
                        s.ordered = s.pending.keys().copied().collect();
                    }
                    s.regs[src] = Val::of(Expr::Made(pc));
                }
            }
            insn::ALU | insn::ALU64 => {
                let operand = if i.code & insn::REGISTER != 0 {
                    s.regs[src].clone()
                } else {
                    Val::of(member.map_or(Expr::Number(i.imm.into()), Expr::Offset))
                };
                let is = match (i.code & 0xf0, i.class(), &s.regs[dst].is, &operand.is) {
                    (0xb0, ..) => operand.is.clone(),
                    (0x00, _, Expr::Stack(a), Expr::Number(b)) => Expr::Stack(a + b),
                    (0x00, _, Expr::State(a), Expr::Number(b)) => Expr::State(a + b),
                    (0x00, _, Expr::ReadOnly(a), Expr::Number(b)) => Expr::ReadOnly(a + b),
                    (0x00, _, Expr::Number(a), Expr::Number(b)) => Expr::Number(a + b),
                    (0x00, _, Expr::Offset(m), e) | (0x00, _, e, Expr::Offset(m)) => {
                        Expr::Plus(Box::new(e.clone()), m.clone())
                    }
                    (0x00, _, e, Expr::Number(b)) | (0x00, _, Expr::Number(b), e) => {
                        Expr::Plus(Box::new(e.clone()), b.to_string())
                    }
                    // An address plus an unknown number, such as the index of an element.
                    (0x00, _, e, f) => match (root(e, &self.kept), root(f, &self.kept)) {
                        (Some(_), _) => Expr::Plus(Box::new(e.clone()), "?".into()),
                        (_, Some(_)) => Expr::Plus(Box::new(f.clone()), "?".into()),
                        _ => Expr::Made(pc),
                    },
                    _ => Expr::Made(pc),
                };
                let mut v = if i.code & 0xf0 == 0xb0 {
                    operand
                } else {
                    let mut v = s.regs[dst].clone();
                    v.sites.extend(operand.sites);
                    v.covers.clear();
                    v
                };
                v.is = is;
                if matches!(v.is, Expr::Made(_)) {
                    v.sites.clear();
                }
                s.regs[dst] = v;
            }
            _ if i.code == insn::CALL => {
                let result = match (i.src, Some(i.imm)) {
                    (2, cast) if cast == self.known.cast => s.regs[1].clone(),
                    // bpf_get_current_task_btf()
                    (0, Some(158)) => Val::of(Expr::Reader),
                    // bpf_probe_read_kernel(to, size, from)
                    (0, Some(113 | 115)) => {
                        let (to, from) = (s.regs[1].clone(), s.regs[3].clone());
                        let v = match &from.is {
                            Expr::Plus(b, m) => {
                                let whole = Val { is: (**b).clone(), ..from.clone() };
                                self.loaded(begin, pc, s, &whole, m.clone())
                            }
                            _ => self.loaded(begin, pc, s, &from, "0".into()),
                        };
                        if let Expr::Stack(at) = to.is {
                            s.stack.insert(at, v);
                        }
                        Val::of(Expr::Made(pc))
                    }
                    _ => Val::of(Expr::Made(pc)),
                };
                if let Some(compares) = i.function(pc).and_then(|f| self.compares.get(&f)) {
                    let also = |e: &Expr| {
                        s.stored.iter().any(|(at, of)| of == e && compares.contains(&in_state(*at)))
                    };
                    s.pending.retain(|_, e| !(compares.contains(e) || also(e)));
                }
                (1..6).for_each(|r| s.regs[r] = Val::of(Expr::Made(pc)));
                s.regs[0] = result;
            }
            _ if i.code == insn::EXIT => {
                for (site, object) in &s.pending {
                    if *site >= KEPT {
                        self.not_compared.insert(*site);
                        continue;
                    }
                    self.wrong.insert(format!(
                        "function {begin}: ends without a comparison of {object:?} after the load {site}"
                    ));
                }
                return Vec::new();
            }
            _ => {
                if matches!(i.code & 0xf0, 0x10 | 0x50) && i.code & insn::REGISTER != 0 {
                    self.compared(pc, s, dst, src);
                }
                let target = i.target(pc).expect("a jump");
                match (&s.regs[dst].is, i.code & 0xf0, i.imm) {
                    (Expr::Ordering, 0x10, 0) => return vec![next],
                    (Expr::Ordering, 0x50, 0) => return vec![target],
                    _ => {}
                }
                return if i.code == insn::JA { vec![target] } else { vec![next, target] };
            }
        }
        vec![next]
    }

    /// The value of a load.
    fn loaded(
        &mut self,
        begin: usize,
        pc: usize,
        s: &mut State,
        address: &Val,
        name: String,
    ) -> Val {
        let (of, name) = match &address.is {
            Expr::Plus(b, m) if name == "0" => (b.clone(), m.clone()),
            e => (Box::new(e.clone()), name),
        };
        self.load(begin, pc, s, address, &name);
        let is = Expr::Load(of, name);
        let covers = match (is_owned(&is), self.known.orders_loads) {
            (true, None) => s.pending.keys().copied().collect(),
            (true, Some(_)) => s.ordered.clone(),
            (false, _) => BTreeSet::new(),
        };
        Val { is, sites: BTreeSet::from([pc]), covers }
    }

    /// A comparison of two registers: is it a check?
    fn compared(&mut self, pc: usize, s: &mut State, a: usize, b: usize) {
        let (a, b) = (&s.regs[a], &s.regs[b]);
        for (now, object) in [(a, b), (b, a)] {
            if !is_owned(&now.is) {
                continue;
            }
            if let Expr::Load(at, _) = &object.is {
                if matches!(**at, Expr::State(_)) {
                    self.new_kept.insert(object.is.clone());
                } else if object.is != now.is {
                    continue;
                }
            }
            let (now, object) = (now.clone(), object.clone());
            let before = s.pending.range(..KEPT).count();
            s.pending.retain(|site, of| {
                !(now.covers.contains(site) && (*of == now.is || *of == object.is))
            });
            if s.pending.range(..KEPT).count() < before {
                self.checks.insert(pc);
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNAL: u8 = 6;
    const TTY: u8 = 1;

    fn load(to: u8, from: u8, off: i16) -> [u8; 8] {
        let [a, b] = off.to_le_bytes();
        [0x79, from << 4 | to, a, b, 0, 0, 0, 0]
    }

    /// Jumps to the end if the two are not equal.
    fn unless_same(a: u8, b: u8, forward: i16) -> [u8; 8] {
        let [x, y] = forward.to_le_bytes();
        [0x5d, b << 4 | a, x, y, 0, 0, 0, 0]
    }

    const FENCE: [u8; 8] = [0xdb, 0x8a, 0xf8, 0xff, 1, 0, 0, 0];
    const WEAK: [u8; 8] = [0xdb, 0x8a, 0xf8, 0xff, 0, 0, 0, 0];
    const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];

    fn wrong(insns: &[[u8; 8]], reorders: bool) -> Vec<String> {
        let insns = insns.concat();
        // A load with this offset from r6 reads signal->tty.
        let member = |pc: usize| {
            let i = insn::decode(&insns[pc * 8..pc * 8 + 8])?;
            (i.class() == insn::LDX && i.src == SIGNAL).then(|| "signal_struct.tty".into())
        };
        let orders_loads = reorders.then_some(0);
        let known = InsnFacts {
            member: &member,
            offset: &|_| None,
            rodata: -1,
            bss: -1,
            orders_loads,
            cast: None,
        };
        check(&insns, &known).0
    }

    /// The terminal of a session, its driver, and a number in the driver.
    fn terminal(fence: [u8; 8]) -> Vec<[u8; 8]> {
        vec![
            load(TTY, SIGNAL, 0x198),
            load(2, TTY, 0x10),
            load(4, TTY, 4),
            fence,
            load(3, SIGNAL, 0x198),
            unless_same(3, TTY, 4),
            load(2, 2, 0x30),
            fence,
            load(3, SIGNAL, 0x198),
            unless_same(3, TTY, 0),
            EXIT,
        ]
    }

    #[test]
    fn checks_before_and_after_a_use_are_right() {
        assert_eq!(wrong(&terminal(FENCE), false), Vec::<String>::new());
        assert_eq!(wrong(&terminal(FENCE), true), Vec::<String>::new());
    }

    /// clang's code for tty_nr() at commit a7ff934: both loads of the pointer first, then the loads
    /// from its target.
    #[test]
    fn a_pointer_that_is_loaded_after_the_check_is_found() {
        let moved = [
            load(TTY, SIGNAL, 0x198),
            load(3, SIGNAL, 0x198),
            unless_same(3, TTY, 4),
            load(2, TTY, 0x10),
            load(3, 2, 0x30),
            load(4, TTY, 4),
            load(2, 2, 0x34),
            EXIT,
        ];
        let found = wrong(&moved, false);
        assert!(found.iter().any(|w| w.contains("follows")), "{found:?}");
        assert!(found.iter().any(|w| w.contains("ends without")), "{found:?}");
    }

    #[test]
    fn a_check_too_few_is_found() {
        // It finds a missing check, before the use or at the end, and a comparison that does not
        // come last.
        for at in [5, 9] {
            let mut few = terminal(FENCE);
            few[at] = [0x05, 0, 0, 0, 0, 0, 0, 0];
            assert!(!wrong(&few, false).is_empty(), "without {at}");
        }
        let mut early = terminal(FENCE);
        early.swap(6, 9);
        early[6] = unless_same(3, TTY, 3);
        assert!(!wrong(&early, false).is_empty());
    }

    #[test]
    fn a_processor_that_loads_in_another_order_needs_an_instruction_for_it() {
        assert!(!wrong(&terminal(WEAK), true).is_empty(), "it does not return the old value");
        for at in [3, 7] {
            let mut few = terminal(FENCE);
            few[at] = [0x05, 0, 0, 0, 0, 0, 0, 0];
            assert!(!wrong(&few, true).is_empty(), "without {at}");
            assert!(wrong(&few, false).is_empty(), "x86-64 needs none");
        }
    }
}
