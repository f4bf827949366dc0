//! Works as a whole: as recorded of Karmada, and what holds for all of them.

mod carried;
mod defaults;
mod pipeline;
mod reference;
