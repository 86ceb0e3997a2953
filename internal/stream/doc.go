// Package stream copies memory past the processor's caches (non-temporal stores): a destination that isn't read soon
// need not be fetched first, nor displace other data from the caches.
//
// Other processors may see such stores later than stores that follow them. A fence waits for them, and so does each
// locked instruction, one of which is involved whenever data is handed to another goroutine. This applies to amd64
// only; elsewhere Copy is an ordinary copy.
package stream
