// Package statedir keeps small pieces of state in a directory, one file each, so that each survives a power failure
// either as it was before a Save or as it is after it, never something in between. A target keeps its state in a [Dir]
// (Store of nvme/target).
//
// A Save writes a new file next to the old one, makes it durable, and renames it over the old one; then it makes the
// name durable. A Dir may be used from any goroutine, but by only one program at a time: it holds a lock on the
// directory, and where that was moved or replaced meanwhile its methods fail. [CreateFile] and [ReplaceFile] do the
// same for a single file, and remove what earlier calls for the same file left behind when they were killed.
package statedir
