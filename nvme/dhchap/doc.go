// Package dhchap is the cryptography of DH-HMAC-CHAP (NVMe base 2.1, section 8.3.4.5): secrets and
// their text form, the Diffie-Hellman exchange over the groups of RFC 7919, and the responses to
// challenges. It knows nothing of commands, messages or queues.
//
// # Secrecy
//
// A Secret never shows itself: it prints as "(secret)" in every way that package fmt and log/slog
// have, and only Text gives it away. Responses are compared with Equal, in constant time, and so
// are powers computed, whose exponents are secrets as well.
//
// # Cost
//
// A response takes some microseconds. NewExchange and Exchange.SessionKey take one power each:
// from half a millisecond with ffdhe2048 to thirty with ffdhe8192. Whoever serves others in the
// same goroutine should call them from another.
//
// # Concurrency
//
// A Secret never changes and may be shared. An Exchange belongs to one transaction.
package dhchap
