//! An engine that this build does not have. Its stand-in has the same name and says that it is not there, so that who
//! chooses among the engines need not know of features.

use crate::engine::EngineId;
use crate::error::Error;

/// Why an engine does not answer that this build does not have.
pub(super) fn not_built(engine: EngineId, feature: &str) -> Error {
    let cause = crate::error::Cause::NotBuilt;
    let why = format!(
        "this program was built without it; the feature '{feature}' of the crate taskdiag adds it"
    );
    Error::Unavailable { engine, cause, why }
}

/// The stand-in for an engine: a type without a value, whose `new` says which feature the build lacks.
macro_rules! absent {
    ($name:ident, $feature:literal) => {
        use crate::engine::{Answer, Engine, EngineId, Support};
        use crate::error::Error;
        use crate::request::Request;

        /// An engine that is not there. There is no value of this type.
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
