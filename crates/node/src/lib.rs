//! The daemon: ports, routes, circuits, IP, control socket
