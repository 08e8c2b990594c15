//! The functions of `taskdiag.h`, which documents them. Each lets no panic out
//! ([`call`](crate::call)), and checks every pointer for NULL and every index.
//!
//! # Safety
//! What the header says: a handle was given out and not freed, a text ends with a NUL, a place for
//! a value may be written to, and one thread at a time uses an object that a call changes.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{null, null_mut};

use crate::ask::{self, Ask, Session};
use crate::call::{apart, free, give, handle, handle_mut, run, store, text, value};
use crate::failure::{Failure, code};
use crate::table::{Found, Table, reason_name};

type Error = *mut *mut Failure;

/// A function of the header. In its body, pointers of the caller are used as it promises there.
macro_rules! export {
    ($($(#[$m:meta])* fn $name:ident($($arg:ident: $t:ty),*) $(-> $r:ty)? $body:block)*) => {
        $(
            $(#[$m])*
            ///
            /// # Safety
            /// As `taskdiag.h` says.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $t),*) $(-> $r)? {
                // SAFETY: the header says what the caller promises, and `call` checks for NULL.
                unsafe { $body }
            }
        )*
    };
}

/// Stores a value of a table, and returns the reason why it is missing, or 0, or an error.
///
/// # Safety
/// `table` is NULL or a table.
unsafe fn found<T>(
    table: *const Table,
    get: impl FnOnce(&'static Table) -> Found<T>,
    put: impl FnOnce(Option<T>),
) -> c_int {
    let mut got = None;
    // SAFETY: the caller promises it. The table lives as long as the caller keeps it.
    let why = unsafe {
        run(null_mut(), || {
            let (value, why) = get(handle(table, "table")?)?;
            got = Some(value);
            Ok(why)
        })
    };
    put(got);
    why
}

/// # Safety
/// Both are NULL, or may be written to.
unsafe fn store_bytes(got: Option<&[u8]>, data: *mut *const c_char, len: *mut usize) {
    let bytes = got.unwrap_or_default();
    // SAFETY: the caller promises it.
    unsafe {
        store(data, got.map_or(null(), |_| bytes.as_ptr().cast()));
        store(len, bytes.len());
    }
}

/// Returns a text that the table keeps.
///
/// # Safety
/// `table` is NULL or a table.
unsafe fn kept(
    table: *const Table,
    get: impl FnOnce(&Table) -> Result<&CString, Failure>,
) -> *const c_char {
    // SAFETY: the caller promises it.
    value(null(), || Ok(get(unsafe { handle(table, "table") }?)?.as_ptr()))
}

export! {
    /// The columns of a kind of rows.
    fn taskdiag_describe(rows: *const c_char, table: *mut *mut Table, error: Error) -> c_int {
        run(error, || give(table, || Table::describing(ask::set(text(rows, "rows")?)?)))
    }
    /// The code of an error.
    fn taskdiag_error_code(error: *const Failure) -> c_int {
        value(code::OK, || Ok(handle(error, "error")?.code))
    }
    /// The text of an error.
    fn taskdiag_error_text(error: *const Failure) -> *const c_char {
        value(c"no error".as_ptr(), || Ok(handle(error, "error")?.text.as_ptr()))
    }
    /// Frees an error.
    fn taskdiag_error_free(error: *mut Failure) {
        free(error);
    }
    /// Makes a query.
    fn taskdiag_query_new(
        rows: *const c_char, columns: *const c_char, query: *mut *mut Ask, error: Error
    ) -> c_int {
        run(error, || give(query, || Ask::new(text(rows, "rows")?, text(columns, "columns")?)))
    }
    /// Sets the condition.
    fn taskdiag_query_where(query: *mut Ask, condition: *const c_char, error: Error) -> c_int {
        run(error, || {
            handle_mut(query, "query")?.set_where(text(condition, "condition")?)?;
            Ok(code::OK)
        })
    }
    /// Sets the order.
    fn taskdiag_query_sort(query: *mut Ask, keys: *const c_char, error: Error) -> c_int {
        run(error, || {
            handle_mut(query, "query")?.set_sort(text(keys, "keys")?)?;
            Ok(code::OK)
        })
    }
    /// Sets the processes.
    fn taskdiag_query_pids(
        query: *mut Ask, pids: *const u32, count: usize, error: Error
    ) -> c_int {
        run(error, || {
            let query = handle_mut(query, "query")?;
            let is_too_long = count > isize::MAX as usize / size_of::<u32>();
            if is_too_long || count > 0 && pids.is_null() {
                return Err(Failure::argument("pids is NULL, or longer than memory is"));
            }
            let given = match count {
                0 => &[],
                _ => std::slice::from_raw_parts(pids, count),
            };
            query.set_pids(given);
            Ok(code::OK)
        })
    }
    /// Sets the engine.
    fn taskdiag_query_engine(query: *mut Ask, name: *const c_char, error: Error) -> c_int {
        run(error, || {
            handle_mut(query, "query")?.set_engine(text(name, "name")?)?;
            Ok(code::OK)
        })
    }
    /// Sets an option.
    fn taskdiag_query_option(query: *mut Ask, option: c_int, to: u64, error: Error) -> c_int {
        run(error, || {
            handle_mut(query, "query")?.set_option(option, to)?;
            Ok(code::OK)
        })
    }
    /// Frees a query.
    fn taskdiag_query_free(query: *mut Ask) {
        free(query);
    }
    /// Asks once.
    fn taskdiag_ask(query: *const Ask, table: *mut *mut Table, error: Error) -> c_int {
        run(error, || {
            let query = handle(query, "query")?;
            give(table, || apart(|| query.answer(None)))
        })
    }
    /// Opens a session.
    fn taskdiag_session_open(
        query: *const Ask, session: *mut *mut Session, error: Error
    ) -> c_int {
        run(error, || give(session, || Ok(Session::new(handle(query, "query")?))))
    }
    /// Asks again.
    fn taskdiag_session_ask(session: *mut Session, table: *mut *mut Table, error: Error) -> c_int {
        run(error, || {
            let session = handle_mut(session, "session")?;
            give(table, || apart(|| session.answer()))
        })
    }
    /// Frees a session.
    fn taskdiag_session_free(session: *mut Session) {
        free(session);
    }
    /// The number of rows.
    fn taskdiag_table_rows(table: *const Table) -> usize {
        value(0, || Ok(handle(table, "table")?.rows()))
    }
    /// The number of columns.
    fn taskdiag_table_columns(table: *const Table) -> usize {
        value(0, || Ok(handle(table, "table")?.columns()))
    }
    /// The number of the column with this name.
    fn taskdiag_table_column(table: *const Table, name: *const c_char) -> c_int {
        value(code::ARGUMENT, || {
            let found = handle(table, "table")?.find(text(name, "name")?);
            Ok(found.map_or(code::QUERY, |c| c_int::try_from(c).unwrap_or(code::RANGE)))
        })
    }
    /// The name of a column.
    fn taskdiag_table_name(table: *const Table, column: usize) -> *const c_char {
        kept(table, |t| t.name(column))
    }
    /// The unit of a column.
    fn taskdiag_table_unit(table: *const Table, column: usize) -> *const c_char {
        kept(table, |t| t.unit(column))
    }
    /// The type of a column.
    fn taskdiag_table_type(table: *const Table, column: usize) -> c_int {
        value(code::ARGUMENT, || handle(table, "table")?.kind(column))
    }
    /// The engines that answered.
    fn taskdiag_table_engines(table: *const Table) -> *const c_char {
        kept(table, |t| Ok(&t.engines))
    }
    /// A remark.
    fn taskdiag_table_remark(table: *const Table, i: usize) -> *const c_char {
        kept(table, |t| t.remarks.get(i).ok_or_else(|| Failure::argument("no such remark")))
    }
    /// The requested pids that no process has.
    fn taskdiag_table_nobody(table: *const Table, pids: *mut *const u32) -> usize {
        let nobody: &[u32] = value(&[], || Ok(handle(table, "table")?.nobody.as_slice()));
        store(pids, nobody.as_ptr());
        nobody.len()
    }
    /// Why an answer ended early.
    fn taskdiag_table_errno(table: *const Table) -> c_int {
        value(0, || Ok(handle(table, "table")?.errno))
    }
    /// Frees a table.
    fn taskdiag_table_free(table: *mut Table) {
        free(table);
    }
    /// A whole number.
    fn taskdiag_u64(table: *const Table, row: usize, column: usize, to: *mut u64) -> c_int {
        found(table, |t| t.u64(row, column), |got| store(to, got.unwrap_or(0)))
    }
    /// A whole number that may be negative.
    fn taskdiag_i64(table: *const Table, row: usize, column: usize, to: *mut i64) -> c_int {
        found(table, |t| t.i64(row, column), |got| store(to, got.unwrap_or(0)))
    }
    /// A number in the unit of its column.
    fn taskdiag_double(table: *const Table, row: usize, column: usize, to: *mut f64) -> c_int {
        found(table, |t| t.double(row, column), |got| store(to, got.unwrap_or(0.0)))
    }
    /// A text.
    fn taskdiag_text(
        table: *const Table, row: usize, column: usize, data: *mut *const c_char, len: *mut usize
    ) -> c_int {
        found(table, |t| t.text(row, column), |got| store_bytes(got, data, len))
    }
    /// How long a list is.
    fn taskdiag_list_size(table: *const Table, row: usize, column: usize, to: *mut usize) -> c_int {
        let size = |t: &Table| match t.texts(row, column) {
            Ok(((_, range), why)) => Ok((range.len(), why)),
            Err(_) => t.u32s(row, column).map(|(numbers, why)| (numbers.len(), why)),
        };
        found(table, size, |got| store(to, got.unwrap_or(0)))
    }
    /// A text of a list.
    fn taskdiag_list_text(
        table: *const Table, row: usize, column: usize, i: usize, data: *mut *const c_char, len: *mut usize
    ) -> c_int {
        let get = |t: &'static Table| {
            let ((texts, mut range), why) = t.texts(row, column)?;
            let at = range.nth(i).ok_or_else(|| Failure::argument("the list is shorter"))?;
            Ok((texts.get(at), why))
        };
        found(table, get, |got| store_bytes(got, data, len))
    }
    /// The numbers of a list.
    fn taskdiag_list_u32(
        table: *const Table, row: usize, column: usize, data: *mut *const u32, len: *mut usize
    ) -> c_int {
        found(table, |t| t.u32s(row, column), |got| {
            store(data, got.map_or(null(), <[u32]>::as_ptr));
            store(len, got.map_or(0, <[u32]>::len));
        })
    }
}

/// The version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn taskdiag_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no NUL"),
        };
    VERSION.as_ptr()
}

/// The name of a reason.
#[unsafe(no_mangle)]
pub extern "C" fn taskdiag_reason_name(reason: c_int) -> *const c_char {
    value(c"unknown".as_ptr(), || Ok(reason_name(reason).as_ptr()))
}
