//! A lab of hosts in network namespaces on one machine
