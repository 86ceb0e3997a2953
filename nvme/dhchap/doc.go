// Package dhchap is the cryptography of DH-HMAC-CHAP (NVMe base 2.1, section 8.3.4.5): secrets and
// their text form, the Diffie-Hellman exchange over the groups of RFC 7919, and the responses to
// challenges. It knows nothing of commands, messages or queues.
//
// # Secrecy
//
// A Secret never reveals itself: it prints as "(secret)" however packages fmt and log/slog format
// it, and only Text returns it. Equal compares responses in constant time. Exponentiation takes
// constant time too, since its exponents are secret.
//
// # Cost
//
// A response takes a few microseconds. NewExchange and Exchange.SessionKey each compute one modular
// exponentiation: from half a millisecond with ffdhe2048 to thirty with ffdhe8192. A goroutine that
// also serves others should have another call them.
//
// # Concurrency
//
// A Secret is immutable and may be shared. An Exchange belongs to one transaction.
package dhchap
