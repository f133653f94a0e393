//! Against a real API server.
