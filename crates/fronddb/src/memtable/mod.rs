//! (header to come with the layer)
