//go:build !race

package roce

const raceBuild = false
