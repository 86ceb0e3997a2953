// Package crowd says who has to make room for others. Whoever connects holds a place from the first
// message on, and before it has proved anything; an address that takes one place after the other
// would leave none. So where places become few, one of those who have proved nothing gives way to
// the next one who comes: the oldest of the address that has most of them, if it has more than the
// newcomer's. Addresses that ask for as much as they can get end up with equal shares, and who has
// none yet always gets one, for as long as it takes to make all the others anew.
//
// A Crowd has no lock of its own, and holds what its owner adds, no more.
package crowd
