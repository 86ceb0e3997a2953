// Package busypoll decides how long to look for packets before sleeping. It makes no call and reads no
// clock: whoever waits tells it how long that took.
package busypoll
