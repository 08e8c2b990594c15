//! The machine that the answer comes from. Each row has the same value, which distinguishes the
//! rows of many machines after they were put together.

use std::borrow::Cow;

use taskdiag_wire::{Fixed, Groups};

use super::super::*;

fn text<const N: usize>(text: &Fixed<N>) -> Value<'static> {
    match text.get() {
        Some(text) => Value::Bytes { data: Cow::Owned(text.to_vec()), cut: false },
        None => Value::UNKNOWN,
    }
}

fn boot_id(cx: &Context, _: &Row<'_>) -> Value<'static> {
    match cx.info.boot_id.get() {
        Some(_) => {
            let data = Cow::Owned(cx.info.boot_id.to_string().into_bytes());
            Value::Bytes { data, cut: false }
        }
        None => Value::UNKNOWN,
    }
}

pub const FIELDS: &[Field] = &[
    row!("host" "HOST" 16 Left [] Text None Plain, "uname(2) nodename",
        "Name of the host that the answer comes from", {"nodename" "NODENAME"},
        |cx, _| text(&cx.info.nodename)),
    row!("boot_id" "BOOT_ID" 36 Left [] Text None Plain, "/proc/sys/kernel/random/boot_id",
        "Id of the boot that the answer comes from; with pid and start_ticks, it identifies a process for ever", {},
        boot_id),
    row!("kernel" "KERNEL" 16 Left [] Text None Plain, "uname(2) release",
        "Release of the kernel that the answer comes from", {"release" "RELEASE"},
        |cx, _| text(&cx.info.release)),
    row!("arch" "ARCH" 7 Left [] Text None Plain, "uname(2) machine",
        "Architecture of the machine that the answer comes from", {},
        |cx, _| text(&cx.info.machine)),
];
