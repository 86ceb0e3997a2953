package main

func serveMetrics(addr string, s *session) (stop func(), err error) { return func() {}, nil }
