//! kvferry
