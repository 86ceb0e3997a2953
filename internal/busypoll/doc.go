// Package busypoll decides how long to poll for packets before sleeping. It makes no system call and reads no clock:
// the caller tells it how long each wait took.
package busypoll
