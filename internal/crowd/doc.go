// Package crowd decides which connection has to make room for a new one. A connection holds a place from its first
// message on, before it has proved anything; an address that takes one place after another would leave none. So when
// places become few, a connection that hasn't proved anything gives way to the newcomer: the oldest one of the address
// that has the most of them, if that address has more than the newcomer's. Addresses that ask for as much as they can
// get end up with equal shares, and an address without a place always gets one, which lasts until all the others have
// been replaced.
//
// A Crowd has no lock of its own, and contains only what its owner adds.
package crowd
