//! Seeded failures: each is walked to its first broken link, and what is named as its mend is carried out.

mod clusters;
mod failures;
mod mending;
mod namespaces;
mod screens;
mod scripts;
mod seeds;
mod told;
