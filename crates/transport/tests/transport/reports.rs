//! What has broken for people on the way of the bytes, by the numbers of the reports that
//! `docs/RELIABILITY.md` lists.

mod batches;
mod limits;
mod wire;
