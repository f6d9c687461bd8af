//! The API over a real socket, with real credentials.

mod fake;
mod http;

mod followers;
mod limits;
mod visibility;
mod writes;
