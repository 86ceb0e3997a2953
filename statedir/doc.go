// Package statedir keeps small pieces of state in a directory, one file each, so that each
// survives a power failure: as it was before a Save or as it is after it, never something
// between. A [Dir] is what a target keeps its state in (Store of nvme/target).
//
// A Save writes a new file beside the old one, makes it durable, and renames it over the old
// one; then it makes the name durable. A Dir may be used from any goroutine, and by one program
// at a time: it holds a lock on the directory. [CreateFile] and [ReplaceFile] do the same for a file by itself,
// and remove what others of them left of it when they were killed.
package statedir
