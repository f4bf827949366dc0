//! The flags, and what is made of them: each group in a file of its own.

mod cluster;
mod hub;
mod leader;
mod member;
mod process;
mod push;
mod registration;
mod run;

use super::Error;
pub use push::PushArgs;
pub use run::RunArgs;
use std::time::Duration;

fn positive(flag: &'static str, value: Duration) -> Result<Duration, Error> {
    if value.is_zero() {
        return Err(Error::Zero(flag));
    }
    Ok(value)
}

fn share(flag: &'static str, value: f64) -> Result<f64, Error> {
    // Written so that NaN is refused too.
    if value > 0.0 && value < 1.0 {
        Ok(value)
    } else {
        Err(Error::Share { flag, value })
    }
}
