package main

func (s *server) serveMetrics() error { return nil }
