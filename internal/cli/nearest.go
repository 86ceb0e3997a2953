package cli

import "github.com/agnivade/levenshtein"

// Nearest returns the known name that a mistyped one most likely means, or "" if none is near.
func Nearest(name string, known []string) string {
	best, distance := "", 3
	if len(name) < shortName {
		distance = 2
	}
	for _, k := range known {
		if d := levenshtein.ComputeDistance(name, k); d < distance {
			best, distance = k, d
		}
	}
	return best
}

// shortName is the length below which names that differ in two letters have little in common.
const shortName = 5
