"""Topics as DataFrames: `spark.read.format("diskless")` and `readStream`, from the bucket and past the broker."""
