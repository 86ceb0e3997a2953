//go:build !go1.26

package udp

func keepMonitorAwake() {}

func letMonitorSleep() {}
