"""Metrics and traces to an OpenTelemetry collector, as flagd sends them: OTLP over gRPC."""
