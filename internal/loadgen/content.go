package loadgen

// leastChunk is the least Spec.CompressChunk, in bytes: no target compresses less than a block.
const leastChunk = 512

// composed reports whether what is written isn't simply random, or zeroes.
func (s *Spec) composed() bool { return s.Compress > 0 || s.Dedupe > 0 }

// compose fills the buffer of a write with new data or, as often as Spec.Dedupe says, with those of the last write that
// had new ones, so that of each chunk the share that Spec.Compress says is zeroes. Called with mu held.
func (j *job) compose(b []byte) {
	s := j.task.spec
	if s.Dedupe == 0 || j.fresh.Uint64()%100 >= uint64(s.Dedupe) {
		j.content = j.fresh.Uint64()
	}
	fillNoise(b, j.content)
	chunk := len(b)
	if s.CompressChunk > 0 {
		chunk = min(chunk, s.CompressChunk)
	}
	for ; len(b) > 0; b = b[chunk:] {
		chunk = min(chunk, len(b))
		clear(b[chunk*(100-s.Compress)/100 : chunk])
	}
}
