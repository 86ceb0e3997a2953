package udp

// Datagrams returns how many datagrams the train holds. It is also the IPv4 Identification that
// the next appended datagram will carry.
func (t *Train) Datagrams() int {
	if t.SegmentSize <= 0 {
		return 0
	}
	return (t.Bytes + t.SegmentSize - 1) / t.SegmentSize
}

// Fits reports whether a datagram of n bytes in parts pieces can join the train: it must not be
// longer than those before it, all of those must be as long as the first, and no limit may be
// exceeded. An empty train takes any datagram except an empty one.
func (t *Train) Fits(n, parts int) bool {
	if t.SegmentSize == 0 {
		return n > 0 && n <= MaxTrainBytes && parts <= MaxTrainParts
	}
	return n > 0 && n <= t.SegmentSize &&
		t.Bytes%t.SegmentSize == 0 &&
		t.Bytes+n <= MaxTrainBytes &&
		t.Bytes < MaxTrainSegments*t.SegmentSize &&
		len(t.Parts)+parts <= MaxTrainParts
}

// Append adds one datagram, gathered from parts, and reports whether it fitted. If it didn't,
// the train is unchanged. Parts grows by append: allocate its capacity once and reuse it.
func (t *Train) Append(parts ...[]byte) bool {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if !t.Fits(n, len(parts)) {
		return false
	}
	if t.SegmentSize == 0 {
		t.SegmentSize = n
	}
	t.Parts = append(t.Parts, parts...)
	t.Bytes += n
	return true
}

// Reset empties the train and keeps the capacity of Parts.
func (t *Train) Reset() {
	clear(t.Parts)
	*t = Train{Parts: t.Parts[:0]}
}

// sum returns the total length of the parts.
func (t *Train) sum() (n int) {
	for _, p := range t.Parts {
		n += len(p)
	}
	return n
}
