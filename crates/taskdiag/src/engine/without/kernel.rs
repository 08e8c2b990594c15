//! Stands in for the kernel engine in a build without the feature `kernel`.

absent!(Kernel, "kernel");

impl Kernel {
    pub(crate) fn answers(&self, _: crate::request::Members) -> taskdiag_wire::Groups {
        match *self {}
    }
    pub(crate) fn sees_all(&self) -> bool {
        match *self {}
    }
}
