//! Memory shared with a peer that may lie: mappings, rings, copies, fences, waits
