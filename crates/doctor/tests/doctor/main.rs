//! What is found on machines that are built in code (`machines/README.md`), on hostile ones, and what the documentation says of it.

mod docs;
mod found;
mod hostile;
mod machines;
