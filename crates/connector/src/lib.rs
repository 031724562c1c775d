//! connector
