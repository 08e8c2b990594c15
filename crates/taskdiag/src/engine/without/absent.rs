//! An engine that this build lacks. The stand-in has the name of the engine and reports that it is
//! missing. So the code that chooses engines does not depend on features.

use crate::engine::EngineId;
use crate::error::Error;

/// The error of an engine that this build lacks.
pub(super) fn not_built(engine: EngineId, feature: &str) -> Error {
    let cause = crate::error::Cause::NotBuilt;
    let why = format!(
        "this program was built without it; the feature '{feature}' of the crate taskdiag adds it"
    );
    Error::Unavailable { engine, cause, why }
}

/// The stand-in for an engine: a type without values, whose `new` returns an error that names the
/// missing feature.
macro_rules! absent {
    ($name:ident, $feature:literal) => {
        use crate::engine::{Answer, Engine, EngineId, Support};
        use crate::error::Error;
        use crate::request::Request;

        /// A missing engine. There is no value of this type.
        #[derive(Debug)]
        pub(crate) enum $name {}

        impl $name {
            pub(crate) fn new() -> Result<$name, Error> {
                Err(super::absent::not_built(EngineId::$name, $feature))
            }
        }

        impl Engine for $name {
            fn id(&self) -> EngineId {
                match *self {}
            }
            fn support(&self) -> Support {
                match *self {}
            }
            fn run(&mut self, _: &Request) -> Result<Answer, Error> {
                match *self {}
            }
        }
    };
}
